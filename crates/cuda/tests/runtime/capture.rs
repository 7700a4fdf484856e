//! Captures: what becomes part of them, what is refused, and that nobody else ends them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tilewright_cuda::{Buffer, CudaError, Stream};
use tilewright_fake_driver::Fake;

use crate::{clean, context, kernel, load, one, under};

#[test]
fn streams_fork_and_join() {
    under(&Fake::new(), |driver| {
        let context = context();
        let [a, b, c] = [(); 3].map(|()| context.stream().unwrap());
        let mut parts = [1u32, 2, 3].map(|_| a.alloc_zeroed::<u32>(4).unwrap());
        let graph = a
            .capture(|| {
                a.fill(&mut parts[0], 1)?;
                b.wait_for(&a)?;
                let forked = a.record()?;
                c.wait(&forked)?;
                assert!([&a, &b, &c].iter().all(|stream| stream.is_capturing()));
                let [first, second, third] = parts.get_disjoint_mut([0, 1, 2]).unwrap();
                b.copy(&*first, second)?;
                c.copy(&*first, third)?;
                a.wait_for(&b)?;
                a.wait(&c.record()?)?;
                a.fill(first, 5)
            })
            .unwrap();
        assert!(![&a, &b, &c].iter().any(|stream| stream.is_capturing()));
        assert_eq!(graph.node_count().unwrap(), 4);
        let exec = graph.instantiate().unwrap();
        assert_eq!(a.download(&parts[0]).unwrap(), [0; 4], "captured, not done");
        exec.upload(&c).unwrap();
        exec.launch(&c).unwrap();
        let found = parts.each_ref().map(|part| b.download(part).unwrap()[0]);
        assert_eq!(found, [5, 1, 1]);
        drop((parts, exec, graph, a, b, c, context));
        clean(driver);
    });
}

#[test]
fn a_stream_that_did_not_join_again_is_an_error() {
    under(&Fake::new(), |driver| {
        let context = context();
        let (a, b) = (context.stream().unwrap(), context.stream().unwrap());
        let mut memory = a.alloc_zeroed::<u32>(4).unwrap();
        let refused = a.capture(|| {
            b.wait_for(&a)?;
            b.fill(&mut memory, 1)
        });
        assert_eq!(refused.unwrap_err().code(), Some(904));
        works(&a, &mut memory);
        works(&b, &mut memory);
        drop((memory, a, b, context));
        clean(driver);
    });
}

/// The stream is live and does what it is told.
#[track_caller]
fn works(stream: &Stream, memory: &mut Buffer<u32>) {
    assert!(!stream.is_capturing());
    stream.fill(&mut *memory, 77).unwrap();
    assert_eq!(stream.download(&*memory).unwrap(), vec![77; memory.len()]);
}

#[test]
fn errors_and_panics_end_a_capture() {
    under(&Fake::new(), |driver| {
        let context = context();
        let (a, b) = (context.stream().unwrap(), context.stream().unwrap());
        let mut memory = a.alloc_zeroed::<u32>(4).unwrap();
        let failed = a.capture(|| {
            b.wait_for(&a)?;
            a.fill(&mut memory, 1)?;
            b.copy(&[0u32; 3][..], memory.slice_mut(..2)?)
        });
        let expected = CudaError::Length { what: "the source of a copy", found: 3, expected: 2 };
        assert_eq!(failed.unwrap_err(), expected);
        works(&a, &mut memory);
        works(&b, &mut memory);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _ = a.capture(|| -> Result<(), CudaError> {
                b.wait_for(&a)?;
                b.fill(&mut memory, 2)?;
                panic!("in the capture")
            });
        }));
        assert!(panicked.is_err());
        works(&a, &mut memory);
        works(&b, &mut memory);
        // An error of the caller's own kind comes back as it is.
        #[derive(Debug)]
        enum Mine {
            Cuda,
            Other,
        }
        impl From<CudaError> for Mine {
            fn from(_: CudaError) -> Mine {
                Mine::Cuda
            }
        }
        assert!(matches!(a.capture(|| Err(Mine::Other)), Err(Mine::Other)));
        let allocates = || a.alloc::<u32>(1).map(drop).map_err(Mine::from);
        assert!(matches!(a.capture(allocates), Err(Mine::Cuda)));
        assert_eq!(driver.live()["captures"], 0);
        // Nobody believes that a capture is still under way.
        drop(kernel(&context, "idle"));
        assert_eq!(driver.live()["modules"], 0);
        drop((memory, a, b, context));
        clean(driver);
    });
}

#[test]
fn what_cannot_be_captured_is_refused_before_the_driver_sees_it() {
    under(&Fake::new(), |driver| {
        let context = context();
        let stream = context.stream().unwrap();
        let mut memory = stream.alloc_zeroed::<u32>(4).unwrap();
        let graph = stream
            .capture(|| {
                stream.fill(&mut memory, 8)?;
                let refused = [
                    stream.alloc::<u32>(1).map(drop),
                    stream.alloc_zeroed::<u32>(1).map(drop),
                    stream.upload(&[1u32]).map(drop),
                    stream.download(&memory).map(drop),
                    stream.copy(&[1u32; 4][..], &mut memory),
                    stream.synchronize(),
                    stream.is_idle().map(drop),
                    stream.host_call(|| {}),
                    stream.capture(|| Ok::<(), CudaError>(())).map(drop),
                ];
                for (n, refused) in refused.into_iter().enumerate() {
                    let error = refused.unwrap_err();
                    assert!(matches!(error, CudaError::Capture { capturing: true, .. }), "{n}: {error}");
                }
                Ok::<(), CudaError>(())
            })
            .unwrap();
        // None of that ended the capture.
        assert_eq!(graph.node_count().unwrap(), 1);
        let outside = stream.host_call_in_graph(|| {}).unwrap_err();
        assert_eq!(
            outside.to_string(),
            "a host function for graphs: the stream is not being captured; use `host_call`"
        );
        let default = context.default_stream();
        assert_eq!(default.capture(|| Ok::<(), CudaError>(())).unwrap_err().code(), Some(900));
        works(&default, &mut memory);
        drop((memory, graph, default, stream, context));
        clean(driver);
    });
}

#[test]
fn others_do_not_end_a_capture() {
    under(&Fake::new(), |driver| {
        let context = context();
        let (a, b) = (context.stream().unwrap(), context.stream().unwrap());
        let mut memory = a.alloc_zeroed::<u32>(4).unwrap();
        let (early, late) = (load(&context).unwrap(), load(&context).unwrap());
        let idle = early.kernel("idle").unwrap();
        idle.launch(&b, &one(), ()).unwrap();
        drop(early);
        let (held, at_once) = (a.alloc::<u32>(4).unwrap(), context.alloc::<u32>(4).unwrap());
        let mut lent = Some((idle, late, held, at_once));
        let graph = a
            .capture(|| {
                a.fill(&mut memory, 1)?;
                std::thread::scope(|scope| {
                    let (context, b, lent) = (&context, &b, &mut lent);
                    scope.spawn(move || {
                        context.synchronize().unwrap();
                        let mut other = b.alloc_zeroed::<u32>(4).unwrap();
                        kernel(context, "poke").launch(b, &one(), (&mut other, 3u32, 4u32)).unwrap();
                        assert_eq!(b.download(&other).unwrap(), [3; 4]);
                        drop(lent.take());
                        b.record().unwrap().synchronize().unwrap();
                        drop(context.stream().unwrap());
                        context.synchronize().unwrap();
                    });
                });
                // The same on this thread.
                context.synchronize()?;
                drop(kernel(&context, "idle"));
                a.fill(memory.slice_mut(1..2)?, 2)
            })
            .unwrap();
        assert_eq!(driver.live()["modules"], 0, "what was dropped meanwhile is unloaded now");
        graph.instantiate().unwrap().launch(&b).unwrap();
        assert_eq!(a.download(&memory).unwrap(), [1, 2, 1, 1]);
        drop((memory, graph, a, b, context));
        clean(driver);
    });
}

#[test]
fn two_captures_at_once() {
    under(&Fake::new(), |driver| {
        let context = context();
        std::thread::scope(|scope| {
            for value in 1..=8u32 {
                let context = &context;
                scope.spawn(move || {
                    let stream = context.stream().unwrap();
                    let mut memory = stream.alloc_zeroed::<u32>(4).unwrap();
                    for round in 0..20 {
                        let exec = stream
                            .capture(|| {
                                kernel(context, "poke").launch(
                                    &stream,
                                    &one(),
                                    (&mut memory, value + round, 4u32),
                                )
                            })
                            .unwrap()
                            .instantiate()
                            .unwrap();
                        exec.launch(&stream).unwrap();
                        assert_eq!(stream.download(&memory).unwrap(), [value + round; 4]);
                    }
                });
            }
        });
        drop(context);
        clean(driver);
    });
}

#[test]
fn captures_do_not_mix() {
    under(&Fake::new(), |driver| {
        let context = context();
        let (a, b) = (context.stream().unwrap(), context.stream().unwrap());
        let mut memory = a.alloc_zeroed::<u32>(4).unwrap();
        let before = a.record().unwrap();
        let outer = a.capture(|| {
            let inner = b.capture(|| b.wait_for(&a));
            assert!(inner.is_err());
            Ok::<(), CudaError>(())
        });
        assert!(outer.is_err());
        // An event from before cannot be waited for inside: that is an error, and no more.
        assert!(a.capture(|| a.wait(&before)).is_err());
        works(&a, &mut memory);
        works(&b, &mut memory);
        drop((memory, before, a, b, context));
        clean(driver);
    });
}

#[test]
fn graphs_in_graphs() {
    under(&Fake::new().patience(20), |driver| {
        let context = context();
        let (a, b) = (context.stream().unwrap(), context.stream().unwrap());
        let mut memory = a.alloc_zeroed::<u32>(4).unwrap();
        let calls = Arc::new(AtomicU32::new(0));
        let inner = {
            let (poke, mut hidden) = (kernel(&context, "poke"), a.alloc::<u32>(4).unwrap());
            let calls = calls.clone();
            let graph = a.capture(|| {
                poke.launch(&a, &one(), (&mut hidden, 6u32, 4u32))?;
                a.copy(&hidden, &mut memory)?;
                a.host_call_in_graph(move || {
                    calls.fetch_add(1, Ordering::SeqCst);
                })
            });
            graph.unwrap().instantiate().unwrap()
        };
        let outer = b
            .capture(|| {
                inner.launch(&b)?;
                b.fill(memory.slice_mut(..1)?, 1)
            })
            .unwrap()
            .instantiate()
            .unwrap();
        drop(inner);
        for _ in 0..3 {
            a.fill(&mut memory, 0).unwrap();
            outer.launch(&a).unwrap();
            assert_eq!(b.download(&memory).unwrap(), [1, 6, 6, 6]);
        }
        assert_eq!(calls.load(Ordering::SeqCst), 3);
        drop((memory, outer, a, b, context));
        clean(driver);
    });
}
