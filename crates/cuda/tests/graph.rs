//! Graphs over the fake driver: what is kept, what is ordered, what is refused.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(target_os = "linux")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tilewright_cuda::{Code, Context, CudaError, InstantiateOptions, Kernel, LaunchConfig, Module, NodeKind};
use tilewright_fake_driver::Fake;

/// What the fake driver does by name, with as much code as it takes to know what is read and written.
const PTX: &str = "\
.version 8.0
.target sm_90
.address_size 64
.visible .entry poke(.param .u64 to, .param .u32 value, .param .u32 count)
{
  .reg .b64 %rd<2>;
  .reg .b32 %r<3>;
  ld.param.u64 %rd1, [to];
  ld.param.u32 %r1, [value];
  ld.param.u32 %r2, [count];
  add.u32 %r1, %r1, %r2;
  st.global.u32 [%rd1], %r1;
  ret;
}
.visible .entry copy_words(.param .u64 to, .param .u64 from, .param .u32 count)
{
  .reg .b64 %rd<3>;
  .reg .b32 %r<3>;
  ld.param.u64 %rd1, [to];
  ld.param.u64 %rd2, [from];
  ld.param.u32 %r2, [count];
  ld.global.u32 %r1, [%rd2];
  add.u32 %r1, %r1, %r2;
  st.global.u32 [%rd1], %r1;
  ret;
}
.visible .entry crash() { ret; }
";

/// One thread.
fn one() -> LaunchConfig {
    LaunchConfig::new(1, 1)
}

fn context() -> Context {
    let context = Context::new(0).unwrap();
    context.set_cache(tilewright_cuda::DiskCache::off());
    context
}

#[allow(unsafe_code)]
fn load(context: &Context) -> Module {
    // SAFETY: the fake driver keeps them within what they are given.
    unsafe { context.load(&Code::ptx(PTX)) }.unwrap()
}

fn kernels(context: &Context) -> (Kernel, Kernel) {
    let module = load(context);
    (module.kernel("poke").unwrap(), module.kernel("copy_words").unwrap())
}

#[test]
fn operations_run_in_the_order_that_was_given() {
    Fake::new().run("operations_run_in_the_order_that_was_given", |driver| {
        {
            let context = context();
            let stream = context.stream().unwrap();
            let (poke, copy_words) = kernels(&context);
            let mut a = stream.alloc_zeroed::<u32>(4).unwrap();
            let mut b = stream.alloc_zeroed::<u32>(4).unwrap();
            let mut wide = stream.alloc_zeroed::<u64>(2).unwrap();
            let calls = Arc::new(AtomicU32::new(0));
            let counter = calls.clone();

            let mut graph = context.graph().unwrap();
            let fill = graph.fill(&mut a, 9, &[]).unwrap();
            let half = a.slice_mut(..2).unwrap();
            let poked = graph.kernel(&poke, &one(), (half, 5u32, 2u32), &[fill]).unwrap();
            let copied = graph.copy(&a, &mut b, &[poked, fill, poked]).unwrap();
            let words = graph.fill(&mut wide, 0x0000_0002_0000_0001, &[]).unwrap();
            let both = graph.join(&[copied, words]).unwrap();
            let tail = wide.cast::<u32>().unwrap();
            let last = b.slice_mut(3..).unwrap();
            let first_word = tail.slice(1..2).unwrap();
            graph.kernel(&copy_words, &one(), (last, first_word, 1u32), &[both]).unwrap();
            graph
                .host_call(
                    move || {
                        counter.fetch_add(1, Ordering::SeqCst);
                    },
                    &[both],
                )
                .unwrap();
            let graph = graph.finish().unwrap();
            // Elements of 8 bytes are filled in two goes.
            assert_eq!(graph.node_count().unwrap(), 8);

            let options = InstantiateOptions { node_priorities: true, upload: Some(stream.clone()) };
            let ready = graph.instantiate_with(&options).unwrap();
            drop((graph, poke, copy_words));
            for round in 1..=3 {
                stream.fill(&mut b, 0).unwrap();
                ready.launch(&stream).unwrap();
                assert_eq!(stream.download(&b).unwrap(), [5, 5, 9, 2]);
                assert_eq!(calls.load(Ordering::SeqCst), round);
            }
            assert_eq!(stream.download(&tail).unwrap(), [1, 2, 1, 2]);
        }
        assert_eq!(driver.faults(), [""; 0]);
        assert_eq!(driver.leaks(), [""; 0]);
    });
}

#[test]
fn a_missing_dependency_is_named() {
    Fake::new().run("a_missing_dependency_is_named", |_| {
        let context = context();
        let stream = context.stream().unwrap();
        let (poke, copy_words) = kernels(&context);
        let mut a = stream.alloc_zeroed::<u32>(8).unwrap();
        let mut b = stream.alloc_zeroed::<u32>(4).unwrap();

        let mut graph = context.graph().unwrap();
        let clear = graph.fill(&mut a, 0, &[]).unwrap();
        graph.kernel(&poke, &one(), (a.slice_mut(2..6).unwrap(), 1u32, 4u32), &[clear]).unwrap();
        graph.kernel(&copy_words, &one(), (&mut b, a.slice(4..).unwrap(), 4u32), &[clear]).unwrap();
        let error = graph.finish().unwrap_err();
        let address = a.address();
        assert_eq!(
            error.to_string(),
            format!(
                "node 1 (kernel `poke`, which writes its `to`) and node 2 (kernel `copy_words`, which reads its `from`) of a graph meet in \
                 bytes 16..24 of the 32 bytes at {address:#x}, and neither comes before the other; give one of them as a dependency \
                 of the other"
            )
        );
        assert!(matches!(error, CudaError::GraphOrder { .. }));

        // Parts that do not meet need no order; two that read neither.
        let mut graph = context.graph().unwrap();
        let (left, right) = a.as_mut_slice().split_at(4).unwrap();
        let left = graph.kernel(&poke, &one(), (left, 1u32, 4u32), &[]).unwrap();
        let right = graph.kernel(&poke, &one(), (right, 2u32, 4u32), &[]).unwrap();
        graph.copy(a.slice(..4).unwrap(), &mut b, &[left, right]).unwrap();
        let mut c = stream.alloc_zeroed::<u32>(4).unwrap();
        graph.copy(a.slice(2..6).unwrap(), &mut c, &[left, right]).unwrap();
        graph.finish().unwrap().instantiate().unwrap().launch(&stream).unwrap();
        assert_eq!(stream.download(&c).unwrap(), [1, 1, 2, 2]);
    });
}

#[test]
fn what_does_not_belong_is_refused() {
    Fake::new().run("what_does_not_belong_is_refused", |_| {
        let context = context();
        let stream = context.stream().unwrap();
        let (poke, _) = kernels(&context);
        let mut a = stream.alloc_zeroed::<u32>(4).unwrap();
        let mut one_graph = context.graph().unwrap();
        let mut other = context.graph().unwrap();
        let node = one_graph.join(&[]).unwrap();
        let error = other.join(&[node]).unwrap_err().to_string();
        assert_eq!(error, "a node: found node 0 of another graph, expected one that this graph gave");
        let error = other.copy(&[1u32; 4][..], &mut a, &[]).unwrap_err().to_string();
        assert!(error.starts_with("a copy in a graph: found ordinary host memory"), "{error}");
        let error = other.kernel(&poke, &one(), (&a, 1u32, 4u32), &[]).unwrap_err().to_string();
        assert!(error.contains("expected memory to write (`&mut`)"), "{error}");
        let error = other.kernel(&poke, &LaunchConfig::new(0, 1), (&mut a, 1u32, 4u32), &[]).unwrap_err();
        assert!(error.to_string().starts_with("the grid of kernel `poke`"), "{error}");
        let mut odd = stream.alloc::<[u8; 3]>(4).unwrap();
        assert!(matches!(other.fill(&mut odd, [0; 3], &[]), Err(CudaError::Length { .. })));
        let far = Context::new(1).unwrap();
        let far_event = far.event().unwrap();
        assert!(matches!(other.record(&far_event, &[]), Err(CudaError::OtherDevice { .. })));
        let far_graph = far.graph().unwrap().finish().unwrap();
        assert!(matches!(other.graph(&far_graph, &[]), Err(CudaError::OtherDevice { .. })));
        // Nothing of that became a node.
        assert_eq!(other.finish().unwrap().node_count().unwrap(), 0);
    });
}

#[test]
fn functions_live_until_their_launches_are_done() {
    Fake::new().patience(5000).run("functions_live_until_their_launches_are_done", |driver| {
        /// Says when it goes.
        struct Owned(Arc<AtomicU32>);
        impl Drop for Owned {
            fn drop(&mut self) {
                self.0.fetch_add(100, Ordering::SeqCst);
            }
        }
        {
            let context = context();
            let stream = context.stream().unwrap();
            let state = Arc::new(AtomicU32::new(0));
            let owned = Owned(state.clone());
            let mut graph = context.graph().unwrap();
            graph
                .host_call(
                    move || {
                        owned.0.fetch_add(1, Ordering::SeqCst);
                    },
                    &[],
                )
                .unwrap();
            let ready = graph.finish().unwrap().instantiate().unwrap();
            ready.launch(&stream).unwrap();
            ready.launch(&stream).unwrap();
            assert_eq!(state.load(Ordering::SeqCst), 0, "nothing runs before it must");
            drop(ready);
            assert_eq!(state.load(Ordering::SeqCst), 102, "called twice, then dropped");

            // The same for what was captured.
            let owned = Owned(state.clone());
            let function = move || {
                owned.0.fetch_add(1, Ordering::SeqCst);
            };
            let graph = stream.capture(|| stream.host_call_in_graph(function)).unwrap();
            graph.instantiate().unwrap().launch(&stream).unwrap();
            drop(graph);
            assert_eq!(state.load(Ordering::SeqCst), 203);
        }
        assert_eq!(driver.leaks(), [""; 0]);
    });
}

#[test]
fn an_update_takes_effect_at_the_next_launch() {
    Fake::new().run("an_update_takes_effect_at_the_next_launch", |driver| {
        {
            let context = context();
            let stream = context.stream().unwrap();
            let mut out = stream.alloc_zeroed::<u32>(2).unwrap();
            let (mut first, mut second) = out.as_mut_slice().split_at(1).unwrap();
            let old = stream.upload(&[1u32]).unwrap();
            let new = stream.upload(&[2u32]).unwrap();
            let to_first = stream.capture(|| stream.copy(&old, first.reborrow())).unwrap();
            let to_second = stream.capture(|| stream.copy(&new, second.reborrow())).unwrap();
            let mut ready = to_first.instantiate().unwrap();
            drop((old, to_first));
            ready.launch(&stream).unwrap();
            // The launch under way still reads `old`, which only it knows of from here on.
            ready.update(&to_second).unwrap();
            drop((new, to_second));
            let noise = stream.upload(&[7u32; 64]).unwrap();
            ready.launch(&stream).unwrap();

            let other = stream.capture(|| stream.fill(first.reborrow(), 5)).unwrap();
            let error = ready.update(&other).unwrap_err();
            assert!(matches!(error, CudaError::GraphUpdate { .. }), "{error}");
            assert!(error.to_string().starts_with("the graph was not updated: "), "{error}");
            assert_eq!(error.remedy(), "instantiate the new graph and launch that");
            stream.fill(second.reborrow(), 0).unwrap();
            ready.launch(&stream).unwrap();
            drop(noise);
            assert_eq!(stream.download(&out).unwrap(), [1, 2]);
        }
        assert_eq!(driver.faults(), [""; 0]);
        assert_eq!(driver.leaks(), [""; 0]);
    });
}

#[test]
fn arguments_of_one_kernel_can_be_changed() {
    Fake::new().run("arguments_of_one_kernel_can_be_changed", |driver| {
        {
            let context = context();
            let stream = context.stream().unwrap();
            let (poke, copy_words) = kernels(&context);
            let mut a = stream.alloc_zeroed::<u32>(4).unwrap();
            let mut b = stream.alloc_zeroed::<u32>(4).unwrap();
            let mut c = stream.alloc_zeroed::<u32>(4).unwrap();

            let mut graph = context.graph().unwrap();
            let to_a = graph.kernel(&poke, &one(), (&mut a, 1u32, 4u32), &[]).unwrap();
            let to_b = graph.kernel(&copy_words, &one(), (&mut b, &a, 4u32), &[to_a]).unwrap();
            let to_c = graph.kernel(&poke, &one(), (&mut c, 3u32, 4u32), &[]).unwrap();
            let nothing = graph.join(&[to_b, to_c]).unwrap();
            let graph = graph.finish().unwrap();
            let mut ready = graph.instantiate().unwrap();
            ready.launch(&stream).unwrap();
            assert_eq!(stream.download(&b).unwrap(), [1; 4]);

            ready.set_kernel_arguments(to_a, (&mut a, 8u32, 4u32)).unwrap();
            ready.set_kernel(to_c, &LaunchConfig::new(2, 32), (&mut c, 4u32, 2u32)).unwrap();
            ready.launch(&stream).unwrap();
            assert_eq!(stream.download(&b).unwrap(), [8; 4]);
            assert_eq!(stream.download(&c).unwrap(), [4, 4, 3, 3]);

            // What a capture would make of that is not known; and back.
            let captured = stream.capture(|| ready.launch(&stream));
            assert!(matches!(captured, Err(CudaError::Capture { .. })), "{captured:?}");
            ready.update(&graph).unwrap();
            stream.capture(|| ready.launch(&stream)).unwrap();
            ready.launch(&stream).unwrap();
            assert_eq!(stream.download(&b).unwrap(), [1; 4]);

            // Memory that another node uses at the same time.
            let error = ready.set_kernel_arguments(to_c, (&mut b, 1u32, 4u32)).unwrap_err();
            assert!(matches!(error, CudaError::GraphOrder { .. }), "{error}");
            let error = ready.set_kernel_arguments(to_c, (&b, 1u32, 4u32)).unwrap_err();
            assert!(matches!(error, CudaError::Argument { .. }), "{error}");
            let error = ready.set_kernel_arguments(nothing, ()).unwrap_err();
            assert!(error.to_string().contains("launches no kernel"), "{error}");
            let cluster = LaunchConfig::new(2, 1).cluster(2);
            let error = ready.set_kernel(to_c, &cluster, (&mut c, 1u32, 4u32)).unwrap_err();
            assert!(error.to_string().contains("expected the same cluster"), "{error}");

            // All that changed nothing, and memory that is no longer used goes.
            let before = driver.live();
            let mut d = stream.alloc_zeroed::<u32>(4).unwrap();
            ready.set_kernel_arguments(to_c, (&mut d, 6u32, 4u32)).unwrap();
            drop(c);
            stream.synchronize().unwrap();
            // The graph itself still has `c`; the one that is ready to run does not.
            drop(graph);
            stream.synchronize().unwrap();
            assert_eq!(
                driver.live(),
                before,
                "one came, one went, and the graph stays with what was made of it"
            );
            ready.launch(&stream).unwrap();
            assert_eq!(stream.download(&d).unwrap(), [6; 4]);

            // Of a captured graph, nobody knows which node is which.
            let mut captured = stream.capture(|| stream.fill(&mut d, 1)).unwrap().instantiate().unwrap();
            let error = captured.set_kernel_arguments(to_a, (&mut a, 1u32, 4u32)).unwrap_err();
            assert!(error.to_string().ends_with("use `update`"), "{error}");
        }
        assert_eq!(driver.faults(), [""; 0]);
        assert_eq!(driver.leaks(), [""; 0]);
    });
}

#[test]
fn a_graph_in_a_graph_keeps_and_orders_what_it_uses() {
    Fake::new().run("a_graph_in_a_graph_keeps_and_orders_what_it_uses", |driver| {
        {
            let context = context();
            let (stream, side) = (context.stream().unwrap(), context.stream().unwrap());
            let (poke, _) = kernels(&context);
            let mut out = stream.alloc_zeroed::<u32>(4).unwrap();
            let inner = {
                let mut a = stream.alloc_zeroed::<u32>(4).unwrap();
                let mut graph = context.graph().unwrap();
                let poked = graph.kernel(&poke, &one(), (&mut a, 5u32, 4u32), &[]).unwrap();
                graph.copy(&a, &mut out, &[poked]).unwrap();
                graph.finish().unwrap()
            };
            let mut outer = context.graph().unwrap();
            let child = outer.graph(&inner, &[]).unwrap();
            let mut last = stream.alloc_zeroed::<u32>(4).unwrap();
            outer.copy(&out, &mut last, &[]).unwrap();
            let error = outer.finish().unwrap_err().to_string();
            assert!(
                error.contains("node 0 (a graph, which writes it) and node 1 (a copy, which reads it)"),
                "{error}"
            );

            let mut outer = context.graph().unwrap();
            assert!(outer.copy(&out, &mut last, &[child]).is_err());
            let child = outer.graph(&inner, &[]).unwrap();
            outer.copy(&out, &mut last, &[child]).unwrap();
            let ready = outer.finish().unwrap().instantiate().unwrap();
            drop((inner, poke));
            // Another stream's work on `out` comes before.
            side.fill(&mut out, 1).unwrap();
            ready.launch(&stream).unwrap();
            assert_eq!(side.download(&last).unwrap(), [5; 4]);

            // Launched into a capture.
            let again = stream.capture(|| ready.launch(&stream)).unwrap();
            assert_eq!(again.nodes().unwrap(), [NodeKind::Graph]);
            drop(ready);
            side.fill(&mut last, 1).unwrap();
            again.instantiate().unwrap().launch(&stream).unwrap();
            assert_eq!(side.download(&last).unwrap(), [5; 4]);
        }
        assert_eq!(driver.faults(), [""; 0]);
        assert_eq!(driver.leaks(), [""; 0]);
    });
}

#[test]
fn nodes_and_edges_can_be_looked_at() {
    Fake::new().run("nodes_and_edges_can_be_looked_at", |_| {
        let context = context();
        let stream = context.stream().unwrap();
        let (poke, _) = kernels(&context);
        let mut a = stream.alloc_zeroed::<u32>(4).unwrap();
        let mut b = stream.alloc_zeroed::<u32>(4).unwrap();
        let event = context.event().unwrap();
        let graph = stream
            .capture(|| {
                poke.launch(&stream, &one(), (&mut a, 1u32, 4u32))?;
                stream.copy(&a, &mut b)?;
                event.record_in_graph(&stream)
            })
            .unwrap();
        let kinds = [NodeKind::Kernel(Some("poke".to_owned())), NodeKind::Copy, NodeKind::Record];
        assert_eq!(graph.nodes().unwrap(), kinds);
        assert_eq!(graph.edges().unwrap(), [(0, 1), (1, 2)]);
        let dot = graph.dot().unwrap();
        assert!(
            dot.contains("n0 [shape=box, label=\"0: kernel `poke`\"]") && dot.contains("n1 -> n2"),
            "{dot}"
        );
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("graph.dot");
        graph.write_dot(&path).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().contains("digraph"));
        assert!(graph.write_dot("a\0b").unwrap_err().to_string().contains("without zero bytes"));
    });
}

#[test]
fn events_reach_out_of_graphs_and_into_them() {
    Fake::new().run("events_reach_out_of_graphs_and_into_them", |driver| {
        {
            let context = context();
            let (stream, side) = (context.stream().unwrap(), context.stream().unwrap());
            let mut a = stream.alloc_zeroed::<u32>(4).unwrap();
            let (begun, ended) = (context.event().unwrap(), context.event().unwrap());
            let gate = context.event().unwrap();
            let mut graph = context.graph().unwrap();
            let wait = graph.wait(&gate, &[]).unwrap();
            let begin = graph.record(&begun, &[wait]).unwrap();
            let fill = graph.fill(&mut a, 3, &[begin]).unwrap();
            graph.record(&ended, &[fill]).unwrap();
            let ready = graph.finish().unwrap().instantiate().unwrap();
            let mut b = side.alloc_zeroed::<u32>(4).unwrap();
            side.fill(&mut b, 4).unwrap();
            gate.record(&side).unwrap();
            drop(gate);
            ready.launch(&stream).unwrap();
            assert!(!ended.is_done().unwrap());
            ended.synchronize().unwrap();
            assert!(ended.since(&begun).is_ok());

            // In captures by name; elsewhere refused.
            let error = ended.record_in_graph(&stream).unwrap_err().to_string();
            assert!(error.ends_with("the stream is not being captured; use `record`"), "{error}");
            assert!(stream.wait_in_graph(&ended).is_err());
            let captured = stream
                .capture(|| {
                    stream.wait_in_graph(&begun)?;
                    stream.fill(&mut a, 5)?;
                    ended.record_in_graph(&stream)
                })
                .unwrap();
            assert_eq!(captured.nodes().unwrap(), [NodeKind::Wait, NodeKind::Fill, NodeKind::Record]);
            let ready = captured.instantiate().unwrap();
            drop((begun, captured));
            ready.launch(&stream).unwrap();
            ended.synchronize().unwrap();
            assert_eq!(stream.download(&a).unwrap(), [5; 4]);
        }
        assert_eq!(driver.faults(), [""; 0]);
        assert_eq!(driver.leaks(), [""; 0]);
    });
}

#[test]
fn programmatic_launches_are_edges_between_kernels() {
    Fake::new().run("programmatic_launches_are_edges_between_kernels", |driver| {
        let context = context();
        let stream = context.stream().unwrap();
        let (poke, copy_words) = kernels(&context);
        let mut a = stream.alloc_zeroed::<u32>(4).unwrap();
        let mut b = stream.alloc_zeroed::<u32>(4).unwrap();
        let mut graph = context.graph().unwrap();
        let fill = graph.fill(&mut b, 0, &[]).unwrap();
        let first = graph.kernel(&poke, &one(), (&mut a, 7u32, 4u32), &[]).unwrap();
        let early = one().programmatic().priority(-1);
        graph.kernel(&copy_words, &early, (&mut b, &a, 4u32), &[fill, first]).unwrap();
        let graph = graph.finish().unwrap();
        assert_eq!(driver.calls("cuGraphAddDependencies_v2"), 1);
        assert_eq!(graph.edges().unwrap().len(), 2);
        graph.instantiate().unwrap().launch(&stream).unwrap();
        assert_eq!(stream.download(&b).unwrap(), [7; 4]);
    });
}

#[test]
fn a_fault_in_a_graph_names_its_kernels() {
    Fake::new().run("a_fault_in_a_graph_names_its_kernels", |_| {
        let context = context();
        let stream = context.stream().unwrap();
        let crash = load(&context).kernel("crash").unwrap();
        let (poke, _) = kernels(&context);
        let mut a = stream.alloc_zeroed::<u32>(4).unwrap();
        let graph = stream
            .capture(|| {
                poke.launch(&stream, &one(), (&mut a, 1u32, 4u32))?;
                crash.launch(&stream, &one(), ())
            })
            .unwrap();
        let ready = graph.instantiate().unwrap();
        stream.synchronize().unwrap();
        ready.launch(&stream).unwrap();
        let error = stream.synchronize().unwrap_err().to_string();
        let text = format!(
            "the launch pending then: a graph with 2 kernels (`poke`, `crash`) (stream {})",
            stream.id()
        );
        assert!(error.ends_with(&text), "{error}");
    });
}

#[test]
fn one_graph_many_threads() {
    Fake::new().run("one_graph_many_threads", |driver| {
        {
            let context = context();
            let stream = context.stream().unwrap();
            let (poke, copy_words) = kernels(&context);
            let mut a = stream.alloc_zeroed::<u32>(4).unwrap();
            let mut b = stream.alloc_zeroed::<u32>(4).unwrap();
            let mut graph = context.graph().unwrap();
            let poked = graph.kernel(&poke, &one(), (&mut a, 7u32, 4u32), &[]).unwrap();
            graph.kernel(&copy_words, &one(), (&mut b, &a, 4u32), &[poked]).unwrap();
            let graph = graph.finish().unwrap();
            let ready = graph.instantiate().unwrap();
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        let own = context.stream().unwrap();
                        let mine = graph.instantiate().unwrap();
                        for _ in 0..20 {
                            ready.launch(&own).unwrap();
                            mine.launch(&own).unwrap();
                            assert_eq!(own.download(&b).unwrap(), [7; 4]);
                        }
                    });
                }
            });
        }
        assert_eq!(driver.faults(), [""; 0]);
        assert_eq!(driver.leaks(), [""; 0]);
    });
}

#[test]
fn an_old_driver_is_an_error_at_the_call_that_needs_more() {
    let old = Fake::new().without(&["cuGraphExecUpdate_v2", "cuGraphAddKernelNode_v2", "cuFuncGetName"]);
    old.run("an_old_driver_is_an_error_at_the_call_that_needs_more", |_| {
        let context = context();
        let stream = context.stream().unwrap();
        let (poke, _) = kernels(&context);
        let mut a = stream.alloc_zeroed::<u32>(4).unwrap();
        let captured = stream.capture(|| poke.launch(&stream, &one(), (&mut a, 1u32, 4u32))).unwrap();
        assert_eq!(captured.nodes().unwrap(), [NodeKind::Kernel(None)]);
        let mut ready = captured.instantiate().unwrap();
        let missing = |error: CudaError| match error {
            CudaError::MissingSymbol { symbol } => symbol,
            CudaError::Launch { cause, .. } => match *cause {
                CudaError::MissingSymbol { symbol } => symbol,
                other => panic!("{other}"),
            },
            other => panic!("{other}"),
        };
        assert_eq!(missing(ready.update(&captured).unwrap_err()), "cuGraphExecUpdate_v2");
        let mut graph = context.graph().unwrap();
        let error = graph.kernel(&poke, &one(), (&mut a, 1u32, 4u32), &[]).unwrap_err();
        assert_eq!(missing(error), "cuGraphAddKernelNode_v2");
        ready.launch(&stream).unwrap();
        assert_eq!(stream.download(&a).unwrap(), [1; 4]);
    });
}

#[test]
fn a_graph_with_half_a_node_is_refused() {
    Fake::new().run("a_graph_with_half_a_node_is_refused", |driver| {
        let context = context();
        let stream = context.stream().unwrap();
        let (poke, _) = kernels(&context);
        let mut a = stream.alloc_zeroed::<u32>(4).unwrap();
        let mut wide = stream.alloc_zeroed::<u64>(4).unwrap();
        let mut graph = context.graph().unwrap();
        driver.fail("cuGraphKernelNodeSetAttribute", 1, 1);
        let error = graph.kernel(&poke, &one().priority(-1), (&mut a, 1u32, 4u32), &[]).unwrap_err();
        assert!(matches!(error, CudaError::Launch { .. }), "{error}");
        let error = graph.finish().unwrap_err().to_string();
        assert!(error.contains("the driver refused an operation"), "{error}");

        let mut graph = context.graph().unwrap();
        driver.fail("cuGraphAddMemsetNode", 2, 1);
        assert!(graph.fill(&mut wide, 1, &[]).is_err());
        assert!(graph.finish().is_err());
    });
}
