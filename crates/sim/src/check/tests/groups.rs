//! Lanes that read the same bytes at once are judged like lanes one after the other.

use proptest::prelude::*;

use crate::check::{Access, Agent, Epoch, Kind, Shadow, WarpClock};

#[derive(Clone, Debug)]
enum Step {
    /// Lanes of a warp read the same word.
    Read { warp: u16, lanes: u32, word: u32 },
    /// A lane of a warp writes a word.
    Write { warp: u16, lane: u32, word: u32 },
    /// Some lanes of a warp order themselves.
    WarpSync { warp: u16, lanes: u32 },
    /// Lanes of one warp release, and lanes of the other acquire.
    Handover { from: u16, lanes: u32, to: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    let lanes = prop_oneof![Just(u32::MAX), Just(0xFFFF), Just(1), Just(0x8000_0001), any::<u32>()];
    let some = lanes.prop_map(|lanes: u32| if lanes == 0 { 1 } else { lanes });
    prop_oneof![
        (0..2u16, some.clone(), 0..3u32).prop_map(|(warp, lanes, word)| Step::Read { warp, lanes, word }),
        (0..2u16, 0..32u32, 0..3u32).prop_map(|(warp, lane, word)| Step::Write { warp, lane, word }),
        (0..2u16, some.clone()).prop_map(|(warp, lanes)| Step::WarpSync { warp, lanes }),
        (0..2u16, some.clone(), some).prop_map(|(from, lanes, to)| Step::Handover { from, lanes, to }),
    ]
}

proptest! {
    #[test]
    fn a_group_of_readers_is_its_lanes(steps in prop::collection::vec(step(), 1..40)) {
        let mut warps = [WarpClock::new(0, 0, u32::MAX), WarpClock::new(0, 1, u32::MAX)];
        let (mut together, mut apart) = (Shadow::new(12), Shadow::new(12));
        for (pc, step) in (0..).zip(steps) {
            let epoch = |warp: u16, lane: u32, clock: &WarpClock| Epoch {
                agent: Agent { cluster: 0, slot: warp, block: 0, lane: u8::try_from(lane).unwrap() },
                clock: clock.clock(),
            };
            match step {
                Step::Read { warp, lanes, word } => {
                    let clock = &warps[usize::from(warp)];
                    let (mut grouped, mut single) = (false, false);
                    for (class, know) in clock.views() {
                        let access = Access::plain(epoch(warp, 0, clock), know, pc, Kind::Read);
                        together.read_groups(&[(lanes, 4 * word)], class, 4, &access, |_, _| grouped = true);
                        let start = |_| 4 * word as usize;
                        apart.access_lanes(lanes & class, 4, start, &access, |_, _| single = true);
                    }
                    prop_assert_eq!(grouped, single);
                }
                Step::Write { warp, lane, word } => {
                    let clock = &warps[usize::from(warp)];
                    let access = Access::plain(epoch(warp, lane, clock), clock.view(lane), pc, Kind::Write);
                    let range = 4 * word as usize..4 * word as usize + 4;
                    let (a, b) = (together.access(range.clone(), &access), apart.access(range, &access));
                    prop_assert_eq!(a.map(|c| c.hazard), b.map(|c| c.hazard));
                }
                Step::WarpSync { warp, lanes } => warps[usize::from(warp)].sync(lanes),
                Step::Handover { from, lanes, to } => {
                    let message = warps[usize::from(from)].release(lanes);
                    warps[usize::from(1 - from)].acquire(to, &message);
                }
            }
        }
    }
}
