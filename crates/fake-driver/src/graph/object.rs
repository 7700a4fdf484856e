//! User objects: memory of the caller's that graphs keep alive.
//!
//! The destructor runs when the last reference goes, on the thread that lets it go; it must not call the driver.

use std::collections::BTreeMap;
use std::ffi::{c_uint, c_void};

use cudarc::driver::sys::{CUgraph, CUhostFn, CUresult, CUuserObject};

use crate::entry::{Driver, Outcome, api, put};
use crate::state::Owned;

#[derive(Debug)]
pub(crate) struct UserObject {
    data: usize,
    destroy: CUhostFn,
    references: u32,
}

impl Owned for UserObject {
    /// It belongs to no context.
    fn device(&self) -> usize {
        usize::MAX
    }
}

impl Driver {
    fn retain_object(&mut self, object: usize, count: u32) -> Outcome {
        self.user_objects.get_mut(object)?.references += count;
        Ok(())
    }

    fn release_object(&mut self, object: usize, count: u32) -> Outcome {
        let entry = self.user_objects.get_mut(object)?;
        entry.references = entry.references.checked_sub(count).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if entry.references == 0 {
            let UserObject { data, destroy, .. } = self.user_objects.remove(object)?;
            if let Some(destroy) = destroy {
                // SAFETY: the caller promised that it can be called once, with this.
                self.unlocked(|| unsafe { destroy(data as *mut c_void) });
            }
        }
        Ok(())
    }

    /// For a copy of what a graph holds: copies hold each object once.
    pub(crate) fn retain_objects(&mut self, objects: &BTreeMap<usize, u32>) {
        for (&object, &count) in objects {
            // A graph only holds objects that exist.
            let _ = self.retain_object(object, count);
        }
    }

    pub(crate) fn release_objects(&mut self, objects: BTreeMap<usize, u32>) {
        for (object, count) in objects {
            let _ = self.release_object(object, count);
        }
    }
}

api! {
    Driver fn cuUserObjectCreate(
        object: *mut CUuserObject,
        data: *mut c_void,
        destroy: CUhostFn,
        references: c_uint,
        flags: c_uint,
    ) |driver| {
        // The only flag there is says that nothing waits for the destructor, and it is mandatory.
        if destroy.is_none() || references == 0 || flags != 1 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let handle = driver.handle();
        put(object, handle as CUuserObject)?;
        driver.user_objects.insert(handle, UserObject { data: data as usize, destroy, references });
        Ok(())
    }

    Driver fn cuUserObjectRetain(object: CUuserObject, count: c_uint) |driver| {
        driver.retain_object(object as usize, count)
    }

    Release fn cuUserObjectRelease(object: CUuserObject, count: c_uint) |driver| {
        driver.release_object(object as usize, count)
    }

    Driver fn cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, count: c_uint, flags: c_uint) |driver| {
        let object = object as usize;
        driver.user_objects.get(object)?;
        *driver.graphs.get_mut(graph as usize)?.objects.entry(object).or_default() += count;
        // With the flag the caller's references become the graph's.
        if flags & 1 == 0 { driver.retain_object(object, count) } else { Ok(()) }
    }

    Driver fn cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: c_uint) |driver| {
        let object = object as usize;
        let held = driver.graphs.get_mut(graph as usize)?.objects.get_mut(&object);
        let held = held.filter(|held| **held >= count).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        *held -= count;
        driver.release_object(object, count)
    }
}
