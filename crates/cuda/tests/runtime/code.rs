//! Loading: the cache on disk as the driver's compiler sees it, many at once, packs.

use std::path::Path;

use tilewright_cuda::{
    Code, Context, CudaError, DiskCache, Entry, Form, Module, Origin, Pack, PackBuilder, PackedKernel, Put,
};
use tilewright_fake_driver::{Fake, Inspector};

use crate::{PTX, clean, context, load, one, under};

/// Loads, and says whether the driver compiled.
fn compiled(driver: Inspector, load: impl FnOnce() -> Result<Module, CudaError>) -> (Module, bool) {
    let before = driver.calls("cuLinkComplete");
    let module = load().unwrap();
    (module, driver.calls("cuLinkComplete") > before)
}

/// The module does what it should.
#[track_caller]
fn works(context: &Context, module: &Module) {
    let stream = context.stream().unwrap();
    let mut memory = stream.alloc::<u32>(4).unwrap();
    module.kernel("poke").unwrap().launch(&stream, &one(), (&mut memory, 5u32, 4u32)).unwrap();
    assert_eq!(stream.download(&memory).unwrap(), [5; 4]);
    let read_only = module.kernel("poke").unwrap().launch(&stream, &one(), (&memory, 5u32, 4u32));
    assert!(matches!(read_only, Err(CudaError::Argument { .. })), "signatures survive");
}

fn cached(folder: &Path) -> Context {
    let context = context();
    context.set_cache(DiskCache::at(folder));
    context
}

#[allow(unsafe_code)]
fn load_code(context: &Context, code: &Code<'_>) -> Result<Module, CudaError> {
    // SAFETY: kernels that reach no memory but their arguments'.
    unsafe { context.load(code) }
}

#[test]
fn the_second_load_compiles_nothing() {
    under(&Fake::new(), |driver| {
        let folder = tempfile::tempdir().unwrap();
        let context = cached(folder.path());
        let (module, was) = compiled(driver, || load(&context));
        assert!(was && matches!(module.origin(), Origin::Compiled(_)));
        works(&context, &module);
        let (again, was) = compiled(driver, || load(&context));
        assert!(!was && again.origin() == Origin::Disk);
        assert_eq!(again.signatures(), module.signatures());
        works(&context, &again);
        // Another process, or the same after everything was dropped.
        drop((module, again, context));
        let context = cached(folder.path());
        let (later, was) = compiled(driver, || load(&context));
        assert!(!was && later.origin() == Origin::Disk);
        works(&context, &later);
        assert_eq!((context.cache().stats().hits, context.cache().stats().misses), (1, 0));
        // What the machine code depends on is part of the key; and who wants no cache gets none.
        for code in
            [Code::ptx(PTX).max_registers(64), Code::ptx(PTX).optimisation(0), Code::ptx(PTX).line_info()]
        {
            assert!(compiled(driver, || load_code(&context, &code)).1);
            assert!(!compiled(driver, || load_code(&context, &code)).1);
        }
        assert!(compiled(driver, || load_code(&context, &Code::ptx(PTX).without_cache())).1);
        assert!(compiled(driver, || load_code(&context, &Code::ptx(&format!("{PTX}\n// other")))).1);
        drop((later, context));
        clean(driver);
    });
}

#[test]
fn what_the_cache_spoils_is_compiled_again() {
    under(&Fake::new(), |driver| {
        let folder = tempfile::tempdir().unwrap();
        let context = cached(folder.path());
        drop(load(&context).unwrap());
        let [info] = <[_; 1]>::try_from(context.cache().list()).unwrap();
        let good = std::fs::read(&info.path).unwrap();
        let entry = context.cache().get(&info.key).unwrap();
        let spoil = |bytes: &[u8]| std::fs::write(&info.path, bytes).unwrap();
        let mut flipped = good.clone();
        flipped[good.len() / 2] ^= 1;
        let damages: [&[u8]; 4] = [&good[..good.len() / 2], &flipped, b"", b"something else"];
        for damage in damages {
            spoil(damage);
            let (module, was) = compiled(driver, || load(&context));
            assert!(was);
            works(&context, &module);
            assert!(!compiled(driver, || load(&context)).1, "written again");
        }
        // Sound as a file, but the driver does not take what is in it: not a cubin, one that was cut, signatures that are none.
        let cut = entry.payload[..entry.payload.len() - 1].to_vec();
        let facts = |signatures: &str| vec![("signatures".to_owned(), signatures.to_owned())];
        let bad = [
            Entry { payload: b"text".to_vec(), ..entry.clone() },
            Entry { payload: Vec::new(), ..entry.clone() },
            Entry { payload: b"\x7fELF of another device".to_vec(), ..entry.clone() },
            Entry { payload: cut, ..entry.clone() },
            Entry { meta: Vec::new(), ..entry.clone() },
            Entry { meta: facts("nonsense("), ..entry.clone() },
        ];
        for (n, bad) in bad.into_iter().enumerate() {
            assert_eq!(context.cache().put(&info.key, &bad), Put::Written, "{n}");
            let (module, was) = compiled(driver, || load(&context));
            assert!(was, "{n}");
            works(&context, &module);
            assert!(!compiled(driver, || load(&context)).1, "{n}: written again");
        }
        drop(context);
        clean(driver);
    });
}

#[test]
fn many_at_once() {
    under(&Fake::new(), |driver| {
        let context = context();
        let texts: Vec<String> = (0..40)
            .map(|n| match n % 10 {
                7 => "garbage".to_owned(),
                _ => format!(
                    ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k{n}() {{ ret; }}\n"
                ),
            })
            .collect();
        let codes: Vec<Code<'_>> = texts.iter().map(|text| Code::ptx(text)).collect();
        #[allow(unsafe_code)]
        // SAFETY: they do nothing.
        let modules = unsafe { context.load_all(&codes) };
        assert_eq!(modules.len(), 40);
        for (n, module) in modules.iter().enumerate() {
            match module {
                Ok(module) => assert_eq!(module.only_kernel().unwrap().name(), format!("k{n}")),
                Err(error) => assert!(n % 10 == 7 && matches!(error, CudaError::Code { .. }), "{n}: {error}"),
            }
        }
        #[allow(unsafe_code)]
        // SAFETY: nothing is loaded.
        let none = unsafe { context.load_all(&[]) };
        assert!(none.is_empty());
        drop((modules, context));
        clean(driver);
    });
}

#[test]
fn packs_compile_nothing_for_their_device() {
    under(&Fake::new(), |driver| {
        let folder = tempfile::tempdir().unwrap();
        let context = cached(folder.path());
        let module = load(&context).unwrap();
        let cache = context.cache();
        let info = cache.list().remove(0);
        let entry = cache.get(&info.key).unwrap();
        let kernel = |name: &str, target: &str, form, code: &[u8]| PackedKernel {
            name: name.to_owned(),
            target: target.parse().unwrap(),
            form,
            code: code.to_vec(),
            signatures: entry.get("signatures").unwrap().to_owned(),
            shared_dynamic: 0,
            block: None,
            cluster: None,
            overlaps: false,
            producer: "a test".to_owned(),
            source: None,
            variant: None,
        };
        let bytes = PackBuilder::new()
            .kernel(kernel("exact", "sm_90", Form::Cubin, &entry.payload))
            .kernel(kernel("exact", "sm_80", Form::Ptx, b"not looked at"))
            .kernel(kernel("text", "sm_80", Form::Ptx, PTX.replace("sm_90", "sm_80").as_bytes()))
            .kernel(kernel("newer", "sm_100", Form::Cubin, b"\x7fELF"))
            .kernel(PackedKernel { signatures: "(".to_owned(), ..kernel("broken", "sm_90", Form::Ptx, b"") })
            .kernel(kernel("binary", "sm_90", Form::Ptx, b"\xff\xfe"))
            .write();
        let pack = Pack::parse(&bytes).unwrap();
        context.set_cache(DiskCache::off());
        #[allow(unsafe_code)]
        // SAFETY: kernels that reach no memory but their arguments'.
        let from_pack = |name: &str| unsafe { context.load_packed(&pack, name) };
        let (exact, was) = compiled(driver, || from_pack("exact"));
        assert!(!was && exact.origin() == Origin::Given);
        works(&context, &exact);
        let (text, was) = compiled(driver, || from_pack("text"));
        assert!(was);
        works(&context, &text);
        let says = |name: &str| from_pack(name).unwrap_err().to_string();
        assert_eq!(
            says("newer"),
            "no kernel `newer for compute capability 9.0`: found exact (sm_90), exact (sm_80), text (sm_80), newer (sm_100), \
             broken (sm_90), binary (sm_90)"
        );
        assert!(says("broken").starts_with("a packed kernel: found "), "{}", says("broken"));
        assert!(says("binary").ends_with("expected PTX as text"), "{}", says("binary"));
        drop((module, exact, text, context));
        clean(driver);
    });
}

#[test]
fn a_cubin_alone_is_checked_by_size() {
    under(&Fake::new(), |driver| {
        let folder = tempfile::tempdir().unwrap();
        let context = cached(folder.path());
        drop(load(&context).unwrap());
        let cache = context.cache();
        let entry = cache.get(&cache.list()[0].key).unwrap();
        let module = load_code(&context, &Code::cubin(&entry.payload)).unwrap();
        let stream = context.stream().unwrap();
        let mut memory = stream.alloc::<u32>(4).unwrap();
        let poke = module.kernel("poke").unwrap();
        poke.launch(&stream, &one(), (&mut memory, 5u32, 4u32)).unwrap();
        assert_eq!(stream.download(&memory).unwrap(), [5; 4]);
        let error = poke.launch(&stream, &one(), (&mut memory, 5u64, 4u32)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "argument 2 of kernel `poke` (parameter `parameter_1`): found an integer of 64 bits, expected an argument of 4 bytes"
        );
        drop((memory, stream, poke, module, context));
        clean(driver);
    });
}
