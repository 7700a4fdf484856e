//! Contestants and the clock.
//!
//! Contestants take turns in one process, and their order changes from round to round, so that what changes with time happens to all of
//! them. On a GPU a sample is a graph of many launches between two events: the host takes no part in it, and short kernels are timed as
//! well as long ones. Launches go through copies of the operands, so that none finds its own in the cache. Where the host's part counts,
//! a sample is many calls and the wait for the last.

use std::time::{Duration, Instant};

use tilewright::cuda::{CudaError, Event, GraphExec, Stream};
use tilewright::device::{Device, DeviceError};

use super::super::Failure;

/// Something that computes.
pub(super) trait Contestant {
    /// Enqueues the work on one of the copies of the operands.
    fn launch(&self, copy: usize) -> Result<(), Failure>;
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Rounds that count; an eighth more come first and do not.
    pub(super) rounds: usize,
    /// What one sample should take.
    pub(super) sample: Duration,
}

/// The most launches of a sample.
const MOST_LAUNCHES: usize = 4096;

/// Seconds of a launch, for each contestant in each round.
pub(super) fn race(
    device: &Device,
    contestants: &[&dyn Contestant],
    copies: usize,
    effort: Effort,
) -> Result<Vec<Vec<f64>>, Failure> {
    let clock = Clock::of(device)?;
    let mut laps = contestants
        .iter()
        .map(|contestant| clock.prepare(*contestant, copies, effort.sample))
        .collect::<Result<Vec<_>, _>>()?;
    let mut laps: Vec<&mut dyn Sampled> = laps.iter_mut().map(|lap| lap as _).collect();
    turns(&mut laps, effort.rounds).into_iter().collect()
}

/// Something that takes a sample when it is its turn.
pub(super) trait Sampled {
    /// Seconds of one launch.
    fn sample(&mut self) -> Result<f64, Failure>;
}

/// Lets all take their turns: seconds of a launch, for each in each round. Who fails drops out, and the others go on.
pub(super) fn turns(entrants: &mut [&mut dyn Sampled], rounds: usize) -> Vec<Result<Vec<f64>, Failure>> {
    let mut times: Vec<_> = entrants.iter().map(|_| Ok(Vec::with_capacity(rounds))).collect();
    let warm_up = rounds.div_ceil(8);
    for round in 0..warm_up + rounds {
        for who in order(round, entrants.len()) {
            let Ok(taken) = &mut times[who] else { continue };
            match entrants[who].sample() {
                Ok(seconds) if round >= warm_up => taken.push(seconds),
                Ok(_) => {}
                Err(failure) => times[who] = Err(failure),
            }
        }
    }
    times
}

/// In which order so many take their turns in a round. Who begins changes, and so does who comes after whom: one that draws much power leaves
/// lower clocks to the next.
fn order(round: usize, count: usize) -> impl Iterator<Item = usize> {
    let reaches_all = |step: &usize| (1..count).all(|times| !(times * step).is_multiple_of(count));
    let steps: Vec<usize> = (1..count.max(2)).filter(reaches_all).collect();
    let step = steps[round % steps.len()];
    (0..count).map(move |turn| (round + turn * step) % count)
}

/// Launches that are timed together.
pub(super) struct Lap<'a> {
    clock: &'a Clock,
    contestant: &'a dyn Contestant,
    copies: usize,
    launches: usize,
    /// The same as a graph, on a GPU.
    graph: Option<GraphExec>,
}

impl Lap<'_> {
    fn launch_all(&self) -> Result<(), Failure> {
        (0..self.launches).try_for_each(|launch| self.contestant.launch(launch % self.copies))
    }
}

impl Sampled for Lap<'_> {
    fn sample(&mut self) -> Result<f64, Failure> {
        self.clock.run(self)
    }
}

/// What time is taken by.
pub(super) enum Clock {
    /// The host's, from the first call until the device has done the last.
    Host(Device),
    /// Events on a GPU.
    Gpu { stream: Stream, start: Event, end: Event },
}

impl Clock {
    /// The clock of what a device does, without the host's part where that can be told apart.
    pub(super) fn of(device: &Device) -> Result<Clock, Failure> {
        let Some(stream) = device.stream() else { return Ok(Clock::Host(device.clone())) };
        let event = || stream.context().event().map_err(broken);
        Ok(Clock::Gpu { stream: stream.clone(), start: event()?, end: event()? })
    }

    /// Launches it on every copy, which also loads what is loaded at the first launch, and finds out how many launches make a sample.
    pub(super) fn prepare<'a>(
        &'a self,
        contestant: &'a dyn Contestant,
        copies: usize,
        sample: Duration,
    ) -> Result<Lap<'a>, Failure> {
        let mut lap = Lap { clock: self, contestant, copies, launches: copies, graph: None };
        self.run(&lap)?;
        lap.launches = launches(sample.as_secs_f64() / self.run(&lap)?, copies);
        if let Clock::Gpu { stream, .. } = self {
            let graph = stream.capture(|| lap.launch_all().map_err(Captured::Launch));
            let graph = graph.map_err(|error| match error {
                Captured::Launch(failure) => failure,
                Captured::Driver(error) => broken(error),
            })?;
            lap.graph = Some(graph.instantiate().map_err(broken)?);
        }
        Ok(lap)
    }

    /// Seconds of one launch.
    fn run(&self, lap: &Lap<'_>) -> Result<f64, Failure> {
        let time = match self {
            Clock::Host(device) => {
                let begin = Instant::now();
                lap.launch_all()?;
                device.synchronize().map_err(broken)?;
                begin.elapsed()
            }
            Clock::Gpu { stream, start, end } => {
                start.record(stream).map_err(broken)?;
                match &lap.graph {
                    Some(graph) => graph.launch(stream).map_err(broken)?,
                    None => lap.launch_all()?,
                }
                end.record(stream).map_err(broken)?;
                end.synchronize().map_err(broken)?;
                end.since(start).map_err(broken)?
            }
        };
        #[allow(clippy::cast_precision_loss, reason = "a few thousand launches")]
        let launches = lap.launches as f64;
        // Clocks have a resolution; nothing takes no time.
        Ok(time.max(Duration::from_nanos(1)).as_secs_f64() / launches)
    }
}

/// So many launches, each copy as often as the others.
fn launches(wanted: f64, copies: usize) -> usize {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    let wanted = wanted.clamp(1.0, MOST_LAUNCHES as f64) as usize;
    wanted.next_multiple_of(copies.max(1))
}

/// Why a capture failed.
enum Captured {
    Launch(Failure),
    Driver(CudaError),
}

impl From<CudaError> for Captured {
    fn from(error: CudaError) -> Captured {
        Captured::Driver(error)
    }
}

/// The machine failed us.
pub(super) fn broken(error: impl Into<DeviceError>) -> Failure {
    Failure::Machine(error.into().to_string())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Notes who was launched on which copy, and takes its time.
    struct Runner<'a> {
        name: char,
        pause: Duration,
        notes: &'a RefCell<Vec<(char, usize)>>,
    }

    impl Contestant for Runner<'_> {
        fn launch(&self, copy: usize) -> Result<(), Failure> {
            self.notes.borrow_mut().push((self.name, copy));
            std::thread::sleep(self.pause);
            Ok(())
        }
    }

    #[test]
    fn contestants_take_turns_on_all_copies() {
        let notes = RefCell::new(Vec::new());
        let runner = |name, pause| Runner { name, pause: Duration::from_millis(pause), notes: &notes };
        let (slow, fast) = (runner('s', 6), runner('f', 2));
        let effort = Effort { rounds: 3, sample: Duration::from_micros(1) };
        let times = race(&Device::cpu(), &[&slow, &fast], 2, effort).unwrap();
        assert_eq!(times.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3]);
        assert!(times[0].iter().zip(&times[1]).all(|(slow, fast)| slow > fast), "{times:?}");
        // After the warm-up, who begins changes; every sample uses both copies.
        let notes = notes.borrow();
        let turns: String = notes[notes.len() - 16..].iter().map(|(name, _)| name).collect();
        assert_eq!(turns, "ssffffssssffffss");
        assert!(notes.iter().any(|&(_, copy)| copy == 1));
    }

    #[test]
    fn all_come_after_all() {
        for count in 1..12 {
            let orders: Vec<Vec<usize>> = (0..2 * count).map(|round| order(round, count).collect()).collect();
            for order in &orders {
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert!(sorted.iter().copied().eq(0..count), "{order:?}");
            }
            let begin = |who: usize| orders.iter().filter(|order| order[0] == who).count();
            assert!((0..count).all(|who| begin(who) == 2), "{orders:?}");
        }
        // Of three, each comes after each of the others equally often.
        let after = |first: usize, second: usize| {
            (0..6)
                .filter(|&round| order(round, 3).collect::<Vec<_>>().windows(2).any(|w| w == [first, second]))
                .count()
        };
        for [first, second] in [[0, 1], [1, 2], [2, 0], [1, 0], [2, 1], [0, 2]] {
            assert_eq!(after(first, second), 2, "{first} {second}");
        }
        assert_eq!(order(3, 0).count(), 0);
    }

    #[test]
    fn who_fails_drops_out_and_the_others_go_on() {
        struct Counted(usize);
        impl Sampled for Counted {
            fn sample(&mut self) -> Result<f64, Failure> {
                self.0 = self.0.checked_sub(1).ok_or_else(|| Failure::Machine("tired".to_owned()))?;
                Ok(1.0)
            }
        }
        let (mut tired, mut fresh) = (Counted(2), Counted(4));
        let times = turns(&mut [&mut tired, &mut fresh], 3);
        assert_eq!(times[0].as_ref().unwrap_err().message(), "tired");
        assert_eq!((times[1].as_ref().unwrap().len(), fresh.0), (3, 0), "one round of warming up");
    }

    #[test]
    fn samples_have_whole_rounds_of_the_copies() {
        assert_eq!([0.3, 10.0, 11.5, 1e9].map(|wanted| launches(wanted, 5)), [5, 10, 15, 4100]);
        assert_eq!(launches(f64::INFINITY, 1), MOST_LAUNCHES);
    }

    #[test]
    fn a_contestant_that_fails_ends_the_race() {
        struct Broken;
        impl Contestant for Broken {
            fn launch(&self, _: usize) -> Result<(), Failure> {
                Err(Failure::Machine("out of order".to_owned()))
            }
        }
        let effort = Effort { rounds: 1, sample: Duration::from_millis(1) };
        let error = race(&Device::cpu(), &[&Broken], 1, effort).unwrap_err();
        assert_eq!(error.message(), "out of order");
    }
}
