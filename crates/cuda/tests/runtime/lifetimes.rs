//! Everything can be dropped at any time: what still runs keeps what it needs, and nothing is left in the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tilewright_cuda::{Buffer, Context, CudaError, Stream, TensorMap};
use tilewright_fake_driver::Fake;
use tilewright_hardware::{Element, SwizzleMode, TensorMapSpec};

use crate::{clean, context, kernel, load, one, under};

/// A 64 by 32 tensor of 2-byte elements fills this many.
const ELEMENTS: usize = 64 * 32;

fn tensor_map(memory: &Buffer<u16>) -> TensorMap {
    let spec = TensorMapSpec::new(Element::BF16, &[64, 32], SwizzleMode::B128).unwrap();
    TensorMap::new(&spec, memory, &[64, 32]).unwrap()
}

#[test]
fn buffers_go_after_their_last_use_on_any_stream() {
    under(&Fake::new(), |driver| {
        let context = context();
        let poke = kernel(&context, "poke");
        for users in 1..=3 {
            for streams_first in [false, true] {
                for ordered in [false, true] {
                    let streams: Vec<Stream> = (0..users).map(|_| context.stream().unwrap()).collect();
                    let make = |stream: &Stream| match ordered {
                        true => stream.alloc::<u32>(4).unwrap(),
                        false => context.alloc::<u32>(4).unwrap(),
                    };
                    let mut buffer = make(&streams[0]);
                    for (value, stream) in (0..).zip(&streams) {
                        poke.launch(stream, &one(), (&mut buffer, value, 4u32)).unwrap();
                    }
                    // Readers on all streams at once, which do not wait for each other.
                    for stream in &streams {
                        let mut copy = make(stream);
                        stream.copy(&buffer, &mut copy).unwrap();
                    }
                    if streams_first {
                        drop(streams);
                        drop(buffer);
                    } else {
                        drop(buffer);
                        drop(streams);
                    }
                    context.synchronize().unwrap();
                    assert_eq!(driver.faults(), [""; 0], "{users} {streams_first} {ordered}");
                    assert_eq!(driver.live()["device_memory"], 0, "{users} {streams_first} {ordered}");
                    assert_eq!(driver.live()["streams"], 0, "{users} {streams_first} {ordered}");
                }
            }
        }
        drop((poke, context));
        clean(driver);
    });
}

#[test]
fn parts_and_casts_are_the_same_memory() {
    under(&Fake::new(), |driver| {
        let context = context();
        let (a, b) = (context.stream().unwrap(), context.stream().unwrap());
        let mut words = a.upload(&[1u32, 2, 3, 4]).unwrap();
        let (left, right) = words.as_mut_slice().split_at(1).unwrap();
        a.fill(left, 9).unwrap();
        b.fill(right.slice(1..).unwrap().cast::<u8>().unwrap(), 0xff).unwrap();
        let longs = words.cast::<u64>().unwrap();
        assert_eq!(a.download(&longs).unwrap(), [2 << 32 | 9, u64::MAX]);
        let longs = longs.cast::<[u8; 3]>().unwrap_err();
        assert!(matches!(longs.as_slice().cast::<[u8; 3]>(), Err(CudaError::Length { .. })));
        let nothing = a.alloc_zeroed::<u32>(0).unwrap();
        assert_eq!(b.download(&nothing).unwrap(), [0u32; 0]);
        drop((longs, nothing, a, b, context));
        clean(driver);
    });
}

#[test]
fn a_module_waits_for_its_launches() {
    under(&Fake::new(), |driver| {
        let context = context();
        let stream = context.stream().unwrap();
        let module = load(&context).unwrap();
        let idle = module.kernel("idle").unwrap();
        let mut counter = module.global::<u32>("counter").unwrap();
        assert_eq!(counter.len(), 4);
        stream.fill(&mut counter, 5).unwrap();
        idle.launch(&stream, &one(), ()).unwrap();
        drop((module, idle));
        assert_eq!(driver.live()["modules"], 1, "the variable keeps it");
        let other = context.stream().unwrap();
        assert_eq!(other.download(&counter).unwrap(), [5; 4]);
        idle_again(&context, &stream);
        other.fill(&mut counter, 6).unwrap();
        drop((other, counter));
        assert_eq!(driver.live()["modules"], 0);
        drop((stream, context));
        clean(driver);
        assert_eq!(driver.launches().len(), 2);
    });
}

/// Loads, launches and forgets.
fn idle_again(context: &Context, stream: &Stream) {
    kernel(context, "idle").launch(stream, &one(), ()).unwrap();
}

#[test]
fn a_graph_keeps_what_it_uses() {
    under(&Fake::new(), |driver| {
        let context = context();
        let (a, b) = (context.stream().unwrap(), context.stream().unwrap());
        let mut seen = a.alloc_zeroed::<u32>(4).unwrap();
        let exec = {
            let poke = kernel(&context, "poke");
            let mut hidden = b.alloc::<u32>(4).unwrap();
            let graph = a
                .capture(|| {
                    poke.launch(&a, &one(), (&mut hidden, 7u32, 4u32))?;
                    a.copy(&hidden, &mut seen)
                })
                .unwrap();
            graph.instantiate().unwrap()
        };
        assert_eq!((driver.live()["modules"], driver.live()["device_memory"]), (1, 2));
        exec.launch(&b).unwrap();
        a.fill(&mut seen, 1).unwrap();
        exec.launch(&a).unwrap();
        // Dropped while it runs.
        drop(exec);
        assert_eq!(b.download(&seen).unwrap(), [7; 4]);
        drop((seen, a, b, context));
        clean(driver);
    });
}

/// Counts how often it was called, and remembers how often that was when it was dropped.
struct Counted {
    calls: Arc<AtomicU32>,
    at_drop: Arc<AtomicU32>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.at_drop.store(self.calls.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

#[test]
fn host_functions_of_a_graph_outlive_its_last_launch() {
    under(&Fake::new().patience(20), |driver| {
        let (calls, at_drop) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(u32::MAX)));
        let context = context();
        let stream = context.stream().unwrap();
        let counted = Counted { calls: calls.clone(), at_drop: at_drop.clone() };
        let graph = stream
            .capture(|| {
                stream.host_call_in_graph(move || {
                    counted.calls.fetch_add(1, Ordering::SeqCst);
                })
            })
            .unwrap();
        let exec = graph.instantiate().unwrap();
        drop(graph);
        for _ in 0..3 {
            exec.launch(&stream).unwrap();
        }
        drop(exec);
        stream.synchronize().unwrap();
        assert_eq!(calls.load(Ordering::SeqCst), 3);
        drop((stream, context));
        assert_eq!(at_drop.load(Ordering::SeqCst), 3, "dropped before its last call, or never");
        clean(driver);
    });
}

#[test]
fn host_functions_are_called_once_and_dropped() {
    under(&Fake::new().patience(20), |driver| {
        let (calls, at_drop) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(u32::MAX)));
        let context = context();
        let stream = context.stream().unwrap();
        let counted = Counted { calls: calls.clone(), at_drop: at_drop.clone() };
        stream
            .host_call(move || {
                counted.calls.fetch_add(1, Ordering::SeqCst);
            })
            .unwrap();
        stream.host_call(|| panic!("lost")).unwrap();
        // One that the driver refuses is dropped as well.
        driver.fail("cuLaunchHostFunc", 1, 1);
        let refused = Arc::new(AtomicU32::new(u32::MAX));
        let counted = Counted { calls: calls.clone(), at_drop: refused.clone() };
        assert!(stream.host_call(move || drop(counted)).is_err());
        assert_ne!(refused.load(Ordering::SeqCst), u32::MAX);
        // Nobody waits: it runs in its own time.
        drop(stream);
        context.synchronize().unwrap();
        assert_eq!((calls.load(Ordering::SeqCst), at_drop.load(Ordering::SeqCst)), (1, 1));
        drop(context);
        clean(driver);
    });
}

#[test]
fn events_may_go_while_they_are_waited_for() {
    under(&Fake::new(), |driver| {
        let context = context();
        let (a, b) = (context.stream().unwrap(), context.stream().unwrap());
        let mut memory = a.alloc_zeroed::<u32>(4).unwrap();
        a.fill(&mut memory, 3).unwrap();
        let event = a.record().unwrap();
        b.wait(&event).unwrap();
        drop(event);
        drop(a);
        b.synchronize().unwrap();
        assert_eq!(driver.pending(), 0);
        assert_eq!(b.download(&memory).unwrap(), [3; 4]);
        drop((memory, b, context));
        clean(driver);
    });
}

#[test]
fn tensor_maps_keep_their_memory() {
    under(&Fake::new(), |driver| {
        let context = context();
        let (a, b) = (context.stream().unwrap(), context.stream().unwrap());
        let kinds = kernel(&context, "kinds");
        let memory = a.alloc_zeroed::<u16>(ELEMENTS).unwrap();
        let map = tensor_map(&memory);
        drop(memory);
        let (read, mut written) = (a.alloc_zeroed::<u32>(1).unwrap(), b.alloc_zeroed::<u32>(1).unwrap());
        let record = [1u32, 2, 3];
        let launch = |stream: &Stream, written: &mut Buffer<u32>, map: &TensorMap| {
            let numbers = (5u32, 6u64, 7.0f32, 8.0f64, 9u16, 10u8);
            let (word, long, single, double, half, byte) = numbers;
            let record = tilewright_cuda::ByValue(&record);
            kinds.launch(
                stream,
                &one(),
                (&read, written, word, long, single, double, half, byte, record, map),
            )
        };
        launch(&a, &mut written, &map).unwrap();
        launch(&b, &mut written, &map.clone()).unwrap();
        drop(map);
        context.synchronize().unwrap();
        assert_eq!(driver.launches().len(), 2);
        drop((read, written, a, b));
        drop((kinds, context));
        clean(driver);
    });
}

#[test]
fn a_context_may_go_first() {
    under(&Fake::new(), |driver| {
        let parts = {
            let context = context();
            let stream = context.stream().unwrap();
            let mut buffer = stream.alloc::<u32>(4).unwrap();
            kernel(&context, "poke").launch(&stream, &one(), (&mut buffer, 3u32, 4u32)).unwrap();
            let event = stream.record().unwrap();
            let exec = stream.capture(|| stream.fill(&mut buffer, 4)).unwrap().instantiate().unwrap();
            (exec, event, stream, buffer)
        };
        let (exec, event, stream, buffer) = parts;
        exec.launch(&stream).unwrap();
        drop((exec, event, stream));
        assert_eq!(driver.live()["contexts"], 1);
        drop(buffer);
        clean(driver);
        // And comes again.
        let stream = context().stream().unwrap();
        assert_eq!(stream.download(&stream.upload(&[1u32, 2]).unwrap()).unwrap(), [1, 2]);
        drop(stream);
        clean(driver);
    });
}

/// Does something so often that a leak would be seen, and looks after each.
fn again_and_again(driver: tilewright_fake_driver::Inspector, what: &str, mut work: impl FnMut()) {
    work();
    let before = driver.live();
    for _ in 0..10_000 {
        work();
    }
    assert_eq!(driver.live(), before, "{what}");
}

#[test]
fn ten_thousand_of_everything() {
    // Nothing has to wait here, and work done at once is quick.
    under(&Fake::new().eager(), |driver| {
        again_and_again(driver, "contexts", || drop(Context::new(0).unwrap()));
        let context = context();
        let stream = context.stream().unwrap();
        let other = context.stream().unwrap();
        again_and_again(driver, "streams", || drop(context.stream().unwrap()));
        again_and_again(driver, "events", || drop(stream.record().unwrap()));
        again_and_again(driver, "ordered buffers", || drop(stream.alloc::<u32>(4).unwrap()));
        again_and_again(driver, "buffers", || drop(context.alloc::<u32>(4).unwrap()));
        again_and_again(driver, "page-locked memory", || drop(context.pinned::<u32>(4).unwrap()));
        again_and_again(driver, "managed memory", || drop(context.managed::<u32>(4).unwrap()));
        again_and_again(driver, "shared buffers", || {
            let mut buffer = stream.alloc_zeroed::<u32>(4).unwrap();
            other.fill(&mut buffer, 1).unwrap();
        });
        let mut memory = stream.alloc_zeroed::<u16>(ELEMENTS).unwrap();
        again_and_again(driver, "tensor maps", || drop(tensor_map(&memory)));
        again_and_again(driver, "graphs", || {
            drop(stream.capture(|| stream.fill(&mut memory, 1)).unwrap().instantiate().unwrap());
        });
        again_and_again(driver, "host functions", || stream.host_call(|| {}).unwrap());
        drop((memory, other, stream, context));
        clean(driver);
    });
}

#[test]
fn ten_thousand_modules() {
    under(&Fake::new().eager(), |driver| {
        let context = context();
        let text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry idle() { ret; }\n";
        again_and_again(driver, "modules", || {
            #[allow(unsafe_code)]
            // SAFETY: the kernel does nothing.
            let module = unsafe { context.load(&tilewright_cuda::Code::ptx(text)) }.unwrap();
            drop(module.only_kernel().unwrap());
        });
        drop(context);
        clean(driver);
    });
}
