//! Data follows the order of the program, whatever streams it goes through, and one stream waits for nobody.

use std::collections::HashMap;
use std::ops::Range;

use tilewright_cuda::{
    Buffer, Context, CudaError, EventOptions, GraphExec, Kernel, LaunchConfig, Stream, StreamOptions,
};
use tilewright_fake_driver::Fake;

use crate::{Random, clean, context, context_of, kernel, one, under};

const WORDS: usize = 6;

/// What an operation does to memory, in the model: memory has a number that is never used again.
#[derive(Clone, Debug)]
enum Effect {
    Fill { memory: usize, range: Range<usize>, value: u32 },
    Copy { from: usize, from_start: usize, to: usize, to_start: usize, len: usize },
}

#[derive(Default)]
struct Model(HashMap<usize, [u32; WORDS]>);

impl Model {
    fn apply(&mut self, effect: &Effect) {
        match effect {
            Effect::Fill { memory, range, value } => {
                self.0.get_mut(memory).unwrap()[range.clone()].fill(*value);
            }
            Effect::Copy { from, from_start, to, to_start, len } => {
                let values = self.0[from];
                self.0.get_mut(to).unwrap()[*to_start..to_start + len]
                    .copy_from_slice(&values[*from_start..from_start + len]);
            }
        }
    }
}

/// Memory of the program.
struct Cell {
    number: usize,
    device: usize,
    buffer: Buffer<u32>,
}

struct Device {
    context: Context,
    poke: Kernel,
    copy_words: Kernel,
}

/// A program that does random things, and what ought to come of it.
struct Program<'a> {
    random: Random,
    devices: &'a [Device],
    streams: Vec<(usize, Stream)>,
    cells: Vec<Cell>,
    graphs: Vec<(usize, GraphExec, Vec<Effect>)>,
    model: Model,
    made: usize,
    log: Vec<String>,
}

impl<'a> Program<'a> {
    fn new(seed: u64, devices: &'a [Device]) -> Program<'a> {
        let mut random = Random::new(seed);
        let devices = &devices[..1 + random.below(devices.len())];
        let mut program = Program {
            random,
            devices,
            streams: Vec::new(),
            cells: Vec::new(),
            graphs: Vec::new(),
            model: Model::default(),
            made: 0,
            log: Vec::new(),
        };
        for n in 0..devices.len() + program.random.below(4) {
            let stream = program.new_stream(n % devices.len());
            program.streams.push(stream);
        }
        for _ in 0..2 + program.random.below(4) {
            let cell = program.new_cell().unwrap();
            program.cells.push(cell);
        }
        program
    }

    fn new_stream(&mut self, device: usize) -> (usize, Stream) {
        let context = &self.devices[device].context;
        let options = StreamOptions { blocking: self.random.chance(20), priority: 0 };
        (device, context.stream_with(&options).unwrap())
    }

    fn new_cell(&mut self) -> Result<Cell, CudaError> {
        let (device, stream) = self.any_stream();
        let number = self.made;
        self.made += 1;
        let value = self.random.word();
        let mut buffer = match self.random.below(3) {
            0 => self.devices[device].context.alloc(WORDS)?,
            _ => stream.alloc(WORDS)?,
        };
        // Sometimes the first to use it is another stream than the one it was made on.
        let filling = self.stream_of(device);
        filling.fill(&mut buffer, value)?;
        self.model.0.insert(number, [value; WORDS]);
        self.log.push(format!("memory {number} on {stream:?}, filled on {filling:?}"));
        Ok(Cell { number, device, buffer })
    }

    fn any_stream(&mut self) -> (usize, Stream) {
        let at = self.random.below(self.streams.len());
        self.streams[at].clone()
    }

    fn stream_of(&mut self, device: usize) -> Stream {
        let own: Vec<Stream> =
            self.streams.iter().filter(|(of, _)| *of == device).map(|(_, stream)| stream.clone()).collect();
        own[self.random.below(own.len())].clone()
    }

    fn range(&mut self) -> Range<usize> {
        let start = self.random.below(WORDS);
        start..start + 1 + self.random.below(WORDS - start)
    }

    /// Something that a capture also takes.
    fn operate(&mut self, (device, stream): (usize, Stream)) -> Result<Effect, CudaError> {
        let at = self.random.below(self.cells.len());
        let range = self.range();
        let other = self.random.below(self.cells.len());
        let both_here = self.cells[at].device == device && self.cells[other].device == device;
        let single = self.cells[at].device == device;
        let launches = self.random.chance(50);
        if at == other || !single {
            // Fills are for memory of the stream's own device.
            let Some(at) = self.cells.iter().position(|cell| cell.device == device) else {
                let cell = self.cell_on(device)?;
                self.cells.push(cell);
                return self.operate((device, stream));
            };
            let value = self.random.word();
            let cell = &mut self.cells[at];
            let to = cell.buffer.slice_mut(range.clone())?;
            self.log.push(format!("fill {}[{range:?}] = {value:#x} on {stream:?}", cell.number));
            if launches {
                let count = u32::try_from(range.len()).unwrap();
                self.devices[device].poke.launch(&stream, &one(), (to, value, count))?;
            } else {
                stream.fill(to, value)?;
            }
            return Ok(Effect::Fill { memory: self.cells[at].number, range, value });
        }
        let to_start = self.random.below(WORDS - range.len() + 1);
        let [source, target] = self.cells.get_disjoint_mut([at, other]).unwrap();
        self.log.push(format!(
            "copy {}[{range:?}] to {}[{to_start}..] on {stream:?}",
            source.number, target.number
        ));
        let from = source.buffer.slice(range.clone())?;
        let to = target.buffer.slice_mut(to_start..to_start + range.len())?;
        if launches && both_here {
            let count = u32::try_from(range.len()).unwrap();
            self.devices[device].copy_words.launch(&stream, &one(), (to, from, count))?;
        } else {
            stream.copy(from, to)?;
        }
        Ok(Effect::Copy {
            from: source.number,
            from_start: range.start,
            to: target.number,
            to_start,
            len: range.len(),
        })
    }

    fn cell_on(&mut self, device: usize) -> Result<Cell, CudaError> {
        loop {
            let cell = self.new_cell()?;
            if cell.device == device {
                return Ok(cell);
            }
        }
    }

    /// Captures operations of one or more streams.
    fn capture(&mut self) -> Result<(), CudaError> {
        let (device, origin) = self.any_stream();
        if self.cells.iter().all(|cell| cell.device != device) {
            return Ok(());
        }
        let mut streams = vec![origin.clone()];
        for (of, stream) in &self.streams {
            if *of == device && *stream != origin && self.random.chance(50) {
                streams.push(stream.clone());
            }
        }
        self.log.push(format!("capture on {streams:?}"));
        let mut effects = Vec::new();
        let graph = origin.capture(|| {
            streams[1..].iter().try_for_each(|stream| stream.wait_for(&origin))?;
            for _ in 0..1 + self.random.below(6) {
                let stream = streams[self.random.below(streams.len())].clone();
                effects.push(self.operate((device, stream))?);
                // What the graph uses stays with it.
                if self.cells.len() > 2 && self.random.chance(10) {
                    let gone = self.random.below(self.cells.len());
                    self.log.push(format!("drop memory {} in the capture", self.cells[gone].number));
                    self.cells.remove(gone);
                    if self.cells.iter().all(|cell| cell.device != device) {
                        break;
                    }
                }
            }
            streams[1..].iter().try_for_each(|stream| origin.wait_for(stream))
        })?;
        self.log.push("captured".to_owned());
        self.graphs.push((device, graph.instantiate()?, effects));
        Ok(())
    }

    fn check(&mut self, at: usize) -> Result<(), CudaError> {
        let device = self.cells[at].device;
        let stream = self.stream_of(device);
        let cell = &self.cells[at];
        self.log.push(format!("download {} on {stream:?}", cell.number));
        assert_eq!(stream.download(&cell.buffer)?, self.model.0[&cell.number], "memory {}", cell.number);
        Ok(())
    }

    fn step(&mut self) -> Result<(), CudaError> {
        match self.random.below(100) {
            0..55 => {
                let stream = self.any_stream();
                let effect = self.operate(stream)?;
                self.model.apply(&effect);
            }
            55..63 => {
                let at = self.random.below(self.cells.len());
                self.check(at)?;
            }
            63..67 => {
                let at = self.random.below(self.cells.len());
                let (stream, value) = (self.stream_of(self.cells[at].device), self.random.word());
                let cell = &mut self.cells[at];
                self.log.push(format!("upload {} on {stream:?}", cell.number));
                stream.copy(&[value; WORDS][..], &mut cell.buffer)?;
                self.model.0.insert(cell.number, [value; WORDS]);
            }
            67..73 => {
                let at = self.random.below(self.cells.len());
                self.log.push(format!("drop memory {}", self.cells[at].number));
                self.cells[at] = self.new_cell()?;
            }
            73..77 => {
                let at = self.random.below(self.streams.len());
                self.log.push(format!("drop {:?}", self.streams[at].1));
                self.streams[at] = self.new_stream(self.streams[at].0);
            }
            77..83 if self.graphs.len() < 3 => self.capture()?,
            77..93 if !self.graphs.is_empty() => {
                let at = self.random.below(self.graphs.len());
                let stream = self.stream_of(self.graphs[at].0);
                self.log.push(format!("graph {at} on {stream:?}"));
                self.graphs[at].1.launch(&stream)?;
                self.graphs[at].2.iter().for_each(|effect| self.model.apply(effect));
            }
            93..95 if !self.graphs.is_empty() => {
                let at = self.random.below(self.graphs.len());
                self.log.push(format!("drop graph {at}"));
                self.graphs.remove(at);
            }
            95 => self.any_stream().1.synchronize()?,
            96 => self.devices[0].context.synchronize()?,
            97 => {
                let (event, stream) = (self.any_stream().1.record()?, self.any_stream().1);
                stream.wait(&event)?;
            }
            _ => {}
        }
        Ok(())
    }
}

fn devices(count: u32) -> Vec<Device> {
    (0..count)
        .map(|ordinal| {
            let context = context_of(ordinal);
            let (poke, copy_words) = (kernel(&context, "poke"), kernel(&context, "copy_words"));
            Device { context, poke, copy_words }
        })
        .collect()
}

/// The model is a program that does one thing after the other. The driver runs what is not ordered youngest first, so that a wait that
/// is missing anywhere shows as other data, or as memory used after it was freed.
fn random_programs(devices: &[Device], seeds: Range<u64>, driver: tilewright_fake_driver::Inspector) {
    for seed in seeds {
        let mut program = Program::new(seed, devices);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..60 {
                program.step().unwrap();
            }
            for at in 0..program.cells.len() {
                program.check(at).unwrap();
            }
        }));
        if outcome.is_err() || !driver.faults().is_empty() {
            let log = program.log.join("\n");
            panic!("seed {seed}: {:?}\n{log}", driver.faults());
        }
    }
}

#[test]
fn random_programs_on_one_device() {
    under(&Fake::new().devices(1), |driver| {
        let devices = devices(1);
        random_programs(&devices, 0..400, driver);
        drop(devices);
        clean(driver);
    });
}

#[test]
fn random_programs_on_two_devices() {
    under(&Fake::new().devices(2), |driver| {
        let devices = devices(2);
        random_programs(&devices, 1000..1300, driver);
        drop(devices);
        clean(driver);
    });
}

#[test]
fn one_stream_never_waits() {
    under(&Fake::new(), |driver| {
        let context = context();
        let (poke, copy_words) = (kernel(&context, "poke"), kernel(&context, "copy_words"));
        let stream = context.stream().unwrap();
        let mut a = stream.upload(&[1u32; WORDS]).unwrap();
        let mut b = stream.alloc_zeroed::<u32>(WORDS).unwrap();
        let mut c = context.alloc::<u32>(WORDS).unwrap();
        for round in 0..20 {
            poke.launch(&stream, &one(), (&mut a, round, 3u32)).unwrap();
            copy_words.launch(&stream, &one(), (&mut b, &a, 6u32)).unwrap();
            stream.copy(&b, &mut c).unwrap();
            stream.fill(&mut a, 9).unwrap();
            let rest = if round == 0 { 1 } else { 9 };
            assert_eq!(stream.download(&c).unwrap(), [round, round, round, rest, rest, rest]);
        }
        drop((a, b, c));
        for call in ["cuStreamWaitEvent", "cuEventCreate", "cuEventRecord", "cuCtxSynchronize"] {
            assert_eq!(driver.calls(call), 0, "{call}");
        }
        drop((poke, copy_words, stream, context));
        clean(driver);
    });
}

#[test]
fn a_launch_is_one_call() {
    under(&Fake::new(), |driver| {
        let context = context();
        let poke = kernel(&context, "poke");
        let stream = context.stream().unwrap();
        let mut a = stream.alloc::<u32>(WORDS).unwrap();
        let launch =
            |a: &mut Buffer<u32>| poke.launch(&stream, &LaunchConfig::new(2, 32), (a, 7u32, 6u32)).unwrap();
        launch(&mut a);
        driver.reset();
        (0..100).for_each(|_| launch(&mut a));
        let calls = driver.all_calls();
        assert_eq!(calls, [("cuLaunchKernel".to_owned(), 100)].into());
    });
}

#[test]
fn a_second_stream_waits_once() {
    under(&Fake::new(), |driver| {
        let context = context();
        let poke = kernel(&context, "poke");
        let (a, b) = (context.stream().unwrap(), context.stream().unwrap());
        let mut memory = a.alloc_zeroed::<u32>(WORDS).unwrap();
        driver.reset();
        for _ in 0..10 {
            poke.launch(&b, &one(), (&mut memory, 1u32, 6u32)).unwrap();
        }
        assert_eq!((driver.calls("cuEventRecord"), driver.calls("cuStreamWaitEvent")), (1, 1));
        // Readers on two streams do not wait for each other, only once for the writer.
        let mut copies = [a.alloc::<u32>(WORDS).unwrap(), b.alloc::<u32>(WORDS).unwrap()];
        for _ in 0..10 {
            for (stream, copy) in [&a, &b].into_iter().zip(&mut copies) {
                stream.copy(&memory, copy).unwrap();
            }
        }
        assert_eq!((driver.calls("cuEventRecord"), driver.calls("cuStreamWaitEvent")), (2, 2));
        // Events for ordering are used again.
        for _ in 0..100 {
            a.fill(&mut memory, 1).unwrap();
            b.fill(&mut memory, 2).unwrap();
        }
        assert_eq!(driver.live()["events"], 1);
        assert_eq!(a.download(&memory).unwrap(), [2; WORDS]);
    });
}

#[test]
fn explicit_events_order_streams_and_take_time() {
    under(&Fake::new(), |driver| {
        let context = context();
        let (a, b) = (context.stream().unwrap(), context.stream().unwrap());
        let (start, end) = (context.event().unwrap(), context.event().unwrap());
        assert!(start.is_done().unwrap(), "never recorded");
        start.record(&a).unwrap();
        let memory = a.alloc_zeroed::<u32>(WORDS).unwrap();
        end.record(&a).unwrap();
        assert!(!end.is_done().unwrap());
        b.wait(&end).unwrap();
        let reached = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
        let count = reached.clone();
        b.host_call(move || {
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        })
        .unwrap();
        b.synchronize().unwrap();
        assert_eq!(reached.load(std::sync::atomic::Ordering::SeqCst), 1);
        assert!(end.is_done().unwrap());
        assert!(end.since(&start).unwrap() > std::time::Duration::ZERO);
        let untimed = context.event_with(&EventOptions { timing: false, blocking: true }).unwrap();
        untimed.record(&b).unwrap();
        untimed.synchronize().unwrap();
        assert!(matches!(untimed.since(&start), Err(CudaError::Unsupported { .. })));
        drop((memory, a, b, start, end, untimed, context));
        clean(driver);
    });
}
