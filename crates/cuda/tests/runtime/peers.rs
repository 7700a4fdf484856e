//! Two devices: copies between them, kernels that reach over, and what is refused.

use tilewright_cuda::{Buffer, ByValue, CudaError, TensorMap};
use tilewright_fake_driver::Fake;
use tilewright_hardware::{Element, SwizzleMode, TensorMapSpec};

use crate::{clean, context_of, kernel, one, under};

#[test]
fn copies_go_between_devices_in_order() {
    under(&Fake::new(), |driver| {
        let (here, there) = (context_of(0), context_of(1));
        let (a, b) = (here.stream().unwrap(), there.stream().unwrap());
        let mut near = a.alloc_zeroed::<u32>(4).unwrap();
        let mut far = b.alloc_zeroed::<u32>(4).unwrap();
        for round in 1..10 {
            kernel(&here, "poke").launch(&a, &one(), (&mut near, round, 4u32)).unwrap();
            // On the stream of either device.
            if round % 2 == 0 { &a } else { &b }.copy(&near, &mut far).unwrap();
            kernel(&there, "poke").launch(&b, &one(), (far.slice_mut(..1).unwrap(), 100u32, 1u32)).unwrap();
            b.copy(&far, &mut near).unwrap();
            assert_eq!(a.download(&near).unwrap(), [100, round, round, round]);
        }
        drop((near, far, a, b, here, there));
        clean(driver);
    });
}

#[test]
fn kernels_reach_memory_of_the_other_device() {
    under(&Fake::new(), |driver| {
        let (here, there) = (context_of(0), context_of(1));
        let (a, b) = (here.stream().unwrap(), there.stream().unwrap());
        let copy_words = kernel(&here, "copy_words");
        let mut near = a.alloc_zeroed::<u32>(4).unwrap();
        let at_once = {
            let mut far = there.alloc::<u32>(4).unwrap();
            b.fill(&mut far, 8).unwrap();
            far
        };
        copy_words.launch(&a, &one(), (&mut near, &at_once, 4u32)).unwrap();
        assert_eq!(a.download(&near).unwrap(), [8; 4]);
        let mut in_order = b.upload(&[9u32; 4]).unwrap();
        copy_words.launch(&a, &one(), (&mut near, &in_order, 4u32)).unwrap();
        copy_words.launch(&a, &one(), (in_order.slice_mut(..1).unwrap(), &at_once, 1u32)).unwrap();
        assert_eq!(a.download(&near).unwrap(), [9; 4]);
        assert_eq!(b.download(&in_order).unwrap(), [8, 9, 9, 9]);
        drop((near, at_once, in_order, copy_words, a, b, here, there));
        clean(driver);
    });
}

#[test]
fn tensor_maps_of_the_other_device() {
    under(&Fake::new(), |driver| {
        let (here, there) = (context_of(0), context_of(1));
        let (a, b) = (here.stream().unwrap(), there.stream().unwrap());
        let kinds = kernel(&here, "kinds");
        let tensor = b.alloc_zeroed::<u16>(64 * 32).unwrap();
        let spec = TensorMapSpec::new(Element::BF16, &[64, 32], SwizzleMode::B128).unwrap();
        let map = TensorMap::new(&spec, &tensor, &[64, 32]).unwrap();
        let (read, mut written): (Buffer<u32>, Buffer<u32>) =
            (a.alloc_zeroed(1).unwrap(), a.alloc_zeroed(1).unwrap());
        let record = [0u32; 3];
        let arguments = (&read, &mut written, 1u32, 2u64, 3.0f32, 4.0f64, 5u16, 6u8, ByValue(&record), &map);
        kinds.launch(&a, &one(), arguments).unwrap();
        a.synchronize().unwrap();
        assert!(here.disable_peer_access(&there).is_ok(), "it was enabled for the launch");
        drop((tensor, map, read, written, kinds, a, b, here, there));
        clean(driver);
    });
}

#[test]
fn access_is_given_and_taken_back() {
    under(&Fake::new(), |driver| {
        let (here, there) = (context_of(0), context_of(1));
        assert_eq!(here.enable_peer_access(&here), Ok(()));
        assert_eq!(here.enable_peer_access(&there), Ok(()));
        assert_eq!(here.enable_peer_access(&there), Ok(()), "again");
        assert_eq!(here.disable_peer_access(&there), Ok(()));
        assert_eq!(here.disable_peer_access(&there).unwrap_err().code(), Some(705));
        assert!(here.device().can_access(there.device()).unwrap());
        assert!(!here.device().can_access(here.device()).unwrap());
        drop((here, there));
        clean(driver);
    });
}

#[test]
fn streams_of_the_wrong_device() {
    under(&Fake::new(), |driver| {
        let (here, there) = (context_of(0), context_of(1));
        let (a, b) = (here.stream().unwrap(), there.stream().unwrap());
        let mut near = a.alloc_zeroed::<u32>(4).unwrap();
        let exec = a.capture(|| a.fill(&mut near, 1)).unwrap().instantiate().unwrap();
        let event = here.event().unwrap();
        let refused = [
            ("the stream", kernel(&here, "idle").launch(&b, &one(), ())),
            ("the stream", exec.launch(&b)),
            ("the stream", exec.upload(&b)),
            ("the stream", event.record(&b)),
        ];
        for (what, result) in refused {
            assert_eq!(result, Err(CudaError::OtherDevice { what, found: 1, expected: 0 }));
        }
        assert_eq!(
            CudaError::OtherDevice { what: "the stream", found: 1, expected: 0 }.to_string(),
            "the stream: found device 1, expected device 0; copy the data there first"
        );
        // Waiting works between devices.
        event.record(&a).unwrap();
        b.wait(&event).unwrap();
        b.wait_for(&a).unwrap();
        b.synchronize().unwrap();
        drop((near, exec, event, a, b, here, there));
        clean(driver);
    });
}

/// Whatever is done to memory of another device on a stream, it works or is refused; it never loses the context.
#[test]
fn memory_of_the_wrong_device() {
    under(&Fake::new(), |driver| {
        let (here, there) = (context_of(0), context_of(1));
        let (a, b) = (here.stream().unwrap(), there.stream().unwrap());
        let mut one = b.upload(&[1u32, 2]).unwrap();
        let mut two = there.alloc::<u32>(2).unwrap();
        let mut locked = there.pinned::<u32>(2).unwrap();
        let outcomes = [
            a.copy(&one, &mut locked),
            a.copy(&locked, &mut two),
            a.fill(&mut one, 3),
            a.fill(two.as_mut_slice().cast::<u64>().unwrap(), 3),
            a.copy(&one, &mut two),
            a.copy(&[1u32, 2][..], &mut two),
            a.download(&one).map(drop),
        ];
        for (n, outcome) in outcomes.iter().enumerate() {
            let wrong_device = matches!(outcome, Err(CudaError::OtherDevice { found: 1, expected: 0, .. }));
            assert!(outcome.is_ok() || wrong_device, "{n}: {outcome:?}");
        }
        here.synchronize().unwrap();
        there.synchronize().unwrap();
        drop((one, two, locked, a, b, here, there));
        clean(driver);
    });
}
