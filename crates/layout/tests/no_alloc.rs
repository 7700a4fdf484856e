//! Evaluation does not touch the heap.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test fails by panicking
#![allow(unsafe_code)] // a global allocator that counts is the only honest witness

use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::cell::Cell;

use tilewright_layout::{Composed, Coord, Layout};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed on unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, memory: Memory) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(memory) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, memory: Memory) {
        // SAFETY: the pointer came from `System.alloc` with this layout.
        unsafe { System.dealloc(pointer, memory) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(f: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.with(Cell::get);
    f();
    ALLOCATIONS.with(Cell::get) - before
}

#[test]
fn evaluation_does_not_allocate() {
    let layout: Layout = "((4,(8,2)),(16,3)):((1,(4,32)),(64,1024))".parse().unwrap();
    let swizzled: Composed = "S<3,3,3> o 8 o ((4,(8,2)),(16,3)):((1,(4,32)),(64,1024))".parse().unwrap();
    let nested: Coord = "((1,(2,1)),(3,2))".parse().unwrap();
    assert_eq!(allocations(|| drop(std::hint::black_box(vec![0u8; 16]))), 1, "the counter counts");
    let mut sum = 0;
    let count = allocations(|| {
        for i in 0..layout.size() {
            sum += layout.at(i).unwrap() + swizzled.at(i).unwrap();
        }
        let _ = std::hint::black_box((layout.eval(&nested), swizzled.eval(&nested)));
    });
    assert_eq!(count, 0);
    assert!(sum > 0);
}
