//! Sixteen threads at once, on one stream and on their own.

use std::sync::Mutex;

use tilewright_cuda::{Context, CudaError, LaunchConfig};
use tilewright_fake_driver::Fake;

use crate::{clean, context, kernel, load, one, under};

const THREADS: u32 = 16;

#[test]
fn threads_share_a_device() {
    under(&Fake::new(), |driver| {
        let context = context();
        let (poke, copy_words) = (kernel(&context, "poke"), kernel(&context, "copy_words"));
        let shared = context.stream().unwrap();
        let common = shared.upload(&[9u32; 8]).unwrap();
        let handed_over = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (context, poke, copy_words) = (&context, &poke, &copy_words);
                let (shared, common, handed_over) = (&shared, &common, &handed_over);
                scope.spawn(move || {
                    let own = context.stream().unwrap();
                    for round in 0..30 {
                        let value = thread << 16 | round;
                        let mut a = shared.alloc::<u32>(8).unwrap();
                        let mut b = own.alloc::<u32>(8).unwrap();
                        poke.launch(&own, &one(), (&mut a, value, 8u32)).unwrap();
                        copy_words.launch(shared, &one(), (&mut b, &a, 4u32)).unwrap();
                        own.copy(common.slice(..4).unwrap(), b.slice_mut(4..).unwrap()).unwrap();
                        assert_eq!(own.download(&b).unwrap(), [value, value, value, value, 9, 9, 9, 9]);
                        // Memory that another thread drops, or goes on with.
                        let mut pool = handed_over.lock().unwrap();
                        pool.push((a, value));
                        let taken = if pool.len() > 4 { Some(pool.remove(0)) } else { None };
                        drop(pool);
                        if let Some((buffer, value)) = taken {
                            assert_eq!(own.download(&buffer).unwrap(), [value; 8]);
                        }
                    }
                });
            }
        });
        for (buffer, value) in handed_over.into_inner().unwrap() {
            assert_eq!(shared.download(&buffer).unwrap(), [value; 8]);
        }
        context.synchronize().unwrap();
        assert_eq!(driver.launches().len(), 2 * 30 * THREADS as usize);
        drop((poke, copy_words, common, shared, context));
        clean(driver);
    });
}

#[test]
fn threads_come_and_go() {
    under(&Fake::new(), |driver| {
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    for _ in 0..20 {
                        let context = Context::new(thread % 2).unwrap();
                        context.set_cache(tilewright_cuda::DiskCache::off());
                        let stream = context.stream().unwrap();
                        let mut memory = stream.alloc::<u32>(4).unwrap();
                        let module = load(&context).unwrap();
                        let poke = module.kernel("poke").unwrap();
                        poke.launch(&stream, &one(), (&mut memory, thread, 4u32)).unwrap();
                        assert_eq!(context.default_stream().download(&memory).unwrap(), [thread; 4]);
                    }
                });
            }
        });
        clean(driver);
    });
}

#[test]
fn threads_ask_for_shared_memory_at_once() {
    under(&Fake::new(), |driver| {
        let context = context();
        let idle = kernel(&context, "idle");
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (context, idle) = (&context, &idle);
                scope.spawn(move || {
                    let stream = context.stream().unwrap();
                    for round in 0..20 {
                        let shared = ((thread * 7 + round * 5) % 227) << 10;
                        idle.launch(&stream, &LaunchConfig::new(1, 32).shared(shared), ()).unwrap();
                    }
                });
            }
        });
        context.synchronize().unwrap();
        assert_eq!(driver.launches().len(), 20 * THREADS as usize);
        drop((idle, context));
        clean(driver);
    });
}

/// An operation of one thread is either before a capture by another, or in it, or after it; never half.
#[test]
fn captures_begin_and_end_between_operations() {
    under(&Fake::new(), |driver| {
        let context = context();
        let stream = context.stream().unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        let going = || !stop.load(std::sync::atomic::Ordering::Relaxed);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while going() {
                        // Refused while the stream is being captured, which is right.
                        if let Ok(mut buffer) = stream.alloc::<u32>(4) {
                            let _ = stream.fill(&mut buffer, 1);
                            let _ = stream.copy(&[1u32; 4][..], &mut buffer);
                        }
                    }
                });
            }
            for _ in 0..3000 {
                let graph = stream.capture(|| Ok::<(), CudaError>(()));
                let _ = graph.and_then(|graph| graph.instantiate()).and_then(|ready| ready.launch(&stream));
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert_eq!(driver.faults(), [""; 0]);
        drop((stream, context));
        assert_eq!(driver.leaks(), [""; 0]);
    });
}

/// A launch does not ask whose context a thread has; one with none, or another's, is set right when the driver complains.
#[test]
fn launches_find_their_context() {
    under(&Fake::new(), |driver| {
        let (first, second) = (Context::new(0).unwrap(), Context::new(1).unwrap());
        let streams = [first.stream().unwrap(), second.stream().unwrap()];
        let pokes = [kernel(&first, "poke"), kernel(&second, "poke")];
        let mut words = streams.each_ref().map(|stream| stream.alloc_zeroed::<u32>(4).unwrap());
        for round in 0..3u32 {
            for device in 0..2 {
                pokes[device].launch(&streams[device], &one(), (&mut words[device], round, 4u32)).unwrap();
                assert_eq!(streams[device].download(&words[device]).unwrap(), [round; 4]);
            }
        }
        std::thread::scope(|scope| {
            let (poke, stream, word) = (&pokes[1], &streams[1], &mut words[1]);
            scope.spawn(move || poke.launch(stream, &one(), (word, 77u32, 4u32)).unwrap());
        });
        assert_eq!(streams[1].download(&words[1]).unwrap(), [77; 4]);
        assert_eq!(driver.faults(), [""; 0]);
    });
}
