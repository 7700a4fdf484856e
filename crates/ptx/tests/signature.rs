//! Signatures of kernels: each rule by a small text, PTX of other compilers, and the text form.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;
use proptest::sample::select;
use tilewright_ptx::{
    Access, Parameter, ParameterKind, PointerSpace, PtxError, Signature, Type, parse, signatures_from_text,
    signatures_to_text,
};

const HEAD: &str = ".version 8.6\n.target sm_90a\n.address_size 64\n";

fn all(text: &str) -> Vec<Signature> {
    parse(&format!("{HEAD}{text}")).unwrap_or_else(|error| panic!("{text}: {error}")).signatures()
}

fn one(text: &str) -> Signature {
    let mut found = all(text);
    assert_eq!(found.len(), 1, "{text}");
    found.remove(0)
}

/// Kind and access of the parameters of a kernel, as printed.
fn judged(params: &str, body: &str) -> Vec<String> {
    let registers = ".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %rd<20>;";
    let kernel = one(&format!(".visible .entry k({params})\n{{\n{registers}\n{body}\nret;\n}}\n"));
    kernel.parameters.iter().map(|p| format!("{} {}", p.kind, p.access)).collect()
}

/// Two undeclared 64-bit parameters, loaded into `%rd1` and `%rd2`.
fn two(body: &str) -> [String; 2] {
    let loads = "ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b];";
    judged(".param .u64 a, .param .u64 b", &format!("{loads}\n{body}")).try_into().unwrap()
}

/// A pointer that is declared in `%rd1` and another 64-bit parameter in `%rd2`.
fn declared(body: &str) -> [String; 2] {
    let loads = "ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b];";
    judged(".param .u64 .ptr .global a, .param .u64 b", &format!("{loads}\n{body}")).try_into().unwrap()
}

#[test]
fn directives_and_declarations() {
    let kernel =
        one(".visible .entry k(.param .u16 s, .param .f64 d, .param .align 16 .b8 t[48], .param .b64 e)\n\
         .maxntid 64, 2\n.reqntid 32, 2, 1\n.reqnctapercluster 2, 1, 1\n.maxclusterrank 8\n{\nret;\n}\n");
    assert_eq!(kernel.name, "k");
    assert_eq!((kernel.max_block, kernel.required_block), (Some([64, 2, 1]), Some([32, 2, 1])));
    assert_eq!((kernel.required_cluster, kernel.max_cluster), (Some([2, 1, 1]), Some(8)));
    assert_eq!((kernel.shared_bytes, kernel.dynamic_shared), (0, false));
    let sizes: Vec<_> =
        kernel.parameters.iter().map(|p| (p.name.as_str(), p.bytes, p.align, p.kind)).collect();
    let expected = [
        ("s", 2, 2, ParameterKind::Scalar(Type::U16)),
        ("d", 8, 8, ParameterKind::Scalar(Type::F64)),
        ("t", 48, 16, ParameterKind::Bytes),
        ("e", 8, 8, ParameterKind::Scalar(Type::B64)),
    ];
    assert_eq!(sizes, expected);
    assert!(kernel.parameters.iter().all(|p| p.access == Access::Unused));

    let plain = one(".entry k()\n{\nret;\n}\n");
    assert_eq!((plain.max_block, plain.required_block), (None, None));
    assert_eq!((plain.required_cluster, plain.max_cluster), (None, None));
    assert!(all(".func f()\n{\nret;\n}\n").is_empty());
}

#[test]
fn a_kernel_without_a_body_may_do_anything() {
    let kernel = one(".extern .entry k(.param .u64 a, .param .u64 .ptr .global b);\n");
    assert!(kernel.parameters.iter().all(|p| p.access == Access::Unknown), "{kernel}");
}

#[test]
fn every_access_to_memory_has_its_direction() {
    let cases = [
        ("ld.global.u32 %r1, [%rd1+8];", "read"),
        ("ld.global.nc.v2.u32 {%r1, %r2}, [%rd1];", "read"),
        ("ldu.global.u32 %r1, [%rd1];", "read"),
        ("prefetch.global.L2 [%rd1];", "read"),
        ("applypriority.global.L2::evict_normal [%rd1], 128;", "read"),
        ("createpolicy.range.global.L2::evict_last.b64 %rd3, [%rd1], 64, 64;", "read"),
        ("cp.async.ca.shared.global [%r1], [%rd1], 16;", "read"),
        ("cp.async.bulk.prefetch.L2.global [%rd1], 64;", "read"),
        (
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 64, [%r2];",
            "read",
        ),
        ("multimem.ld_reduce.global.add.f32 %f1, [%rd1];", "read"),
        ("wmma.load.a.sync.aligned.row.m8n8k4.global.f64 {%rd3}, [%rd1], 4;", "read"),
        ("fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;", "read"),
        ("st.global.u32 [%rd1], %r1;", "write"),
        ("st.global.release.gpu.u32 [%rd1], 1;", "write"),
        ("discard.global.L2 [%rd1], 128;", "write"),
        ("cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 64;", "write"),
        ("multimem.st.global.u32 [%rd1], %r1;", "write"),
        ("wmma.store.d.sync.aligned.row.m8n8k4.global.f64 [%rd1], {%rd3, %rd4}, 4;", "write"),
        (
            "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd1], [%rd4], 128;",
            "write",
        ),
        ("atom.global.add.u32 %r1, [%rd1], 1;", "read-write"),
        ("red.global.add.u32 [%rd1], 1;", "read-write"),
        ("multimem.red.relaxed.gpu.global.add.u32 [%rd1], %r1;", "read-write"),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r1], 64;", "read-write"),
        ("tensormap.replace.tile.rank.global.b1024.b32 [%rd1], %r1;", "read-write"),
        ("ld.global.u32 %r1, [%rd1]; st.global.u32 [%rd1], %r1;", "read-write"),
        ("setp.eq.u64 %p1, %rd1, 0;", "read"),
        ("call f, (%rd1);", "unknown"),
    ];
    for (body, access) in cases {
        let [a, b] = declared(body);
        assert_eq!((a, b), (format!("pointer:global {access}"), "scalar:u64 read".into()), "{body}");
    }
}

#[test]
fn memory_through_a_tensor_map_in_a_parameter() {
    let cases = [
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [m, {%r2, %r3}], [%r4];",
            "tensor-map read",
        ),
        ("cp.async.bulk.prefetch.tensor.1d.L2.global [m, {%r2}];", "tensor-map read"),
        ("prefetch.param.tensormap [m];", "tensor-map read"),
        ("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [m, {%r2}], [%r1];", "tensor-map write"),
        (
            "cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.bulk_group [m, {%r2}], [%r1];",
            "tensor-map read-write",
        ),
        (
            "mov.b64 %rd1, m; cvta.param.u64 %rd2, %rd1; add.u64 %rd3, %rd2, 0;\n\
             cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd3, {%r2}], [%r1];\nprefetch.tensormap [%rd2];",
            "tensor-map read-write",
        ),
        ("mov.b64 %rd1, m; prefetch.tensormap [%rd1]; ld.param.u64 %rd2, [%rd1];", "tensor-map unknown"),
        ("mov.b64 %rd1, m; prefetch.tensormap [%rd1]; ld.param.u64 %rd2, [m+64];", "tensor-map unknown"),
        ("mov.b64 %rd1, m; prefetch.tensormap [%rd1]; st.shared.u64 [%r1], %rd1;", "tensor-map unknown"),
        ("ld.param.u64 %rd2, [m+64];", "bytes unknown"),
        ("mov.b64 %rd1, m; ld.param.u64 %rd2, [%rd1];", "bytes unknown"),
        ("", "bytes unused"),
    ];
    for (body, expected) in cases {
        assert_eq!(judged(".param .align 64 .b8 m[128]", body), [expected], "{body}");
    }
    // A map in global memory is read, and says nothing of the memory it describes.
    let [map, _] = two("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd1, {%r2}], [%r1];");
    assert_eq!(map, "pointer:generic read");
    // A map inside a structure is a structure.
    assert_eq!(judged(".param .align 64 .b8 m[192]", "prefetch.param.tensormap [m+64];"), ["bytes unknown"]);
}

#[test]
fn pointers_are_followed_through_registers() {
    let ways = [
        "mov.u64 %rd3, %rd1;",
        "cvta.to.global.u64 %rd3, %rd1;",
        "add.s64 %rd3, %rd1, 16;",
        "mul.wide.u32 %rd4, %r1, 4; add.s64 %rd3, %rd1, %rd4;",
        "mul.wide.u32 %rd4, %r1, 4; sub.s64 %rd3, %rd1, %rd4;",
        "mad.wide.u32 %rd3, %r1, 4, %rd1;",
        "or.b64 %rd3, %rd1, 4;",
        "and.b64 %rd3, %rd1, -16;",
        "shr.u64 %rd4, %rd1, 4; shl.b64 %rd3, %rd4, 4;",
        "selp.b64 %rd3, %rd1, %rd9, %p1;",
        "max.u64 %rd3, %rd1, %rd9;",
        "mov.b64 {%r1, %r2}, %rd1; mov.b64 %rd3, {%r1, %r2};",
        "mov.b64 {%r1, %r2}, %rd1; shfl.sync.idx.b32 %r3, %r1, 0, 31, -1; shfl.sync.idx.b32 %r4, %r2, 0, 31, -1;\n\
         mov.b64 %rd3, {%r3, %r4};",
        "mov.b64 {%r1, %r2}, %rd1; add.cc.u32 %r3, %r1, 8; addc.u32 %r4, %r2, 0; mov.b64 %rd3, {%r3, %r4};",
        "cvt.u32.u64 %r1, %rd1; shr.u64 %rd4, %rd1, 32; shl.b64 %rd5, %rd4, 32; cvt.u64.u32 %rd6, %r1;\n\
         or.b64 %rd3, %rd5, %rd6;",
        "ld.param.v2.u32 {%r1, %r2}, [a]; mov.b64 %rd3, {%r1, %r2};",
        "ld.param.b64 {%rd3}, [a];",
        "ld.param.u32 %r1, [a]; ld.param.u32 %r2, [a+4]; mov.b64 %rd3, {%r1, %r2};",
        "neg.s64 %rd4, %rd1; sub.s64 %rd3, 0, %rd4;",
        // The text order does not count, nor does a detour through a loop.
        "L: mov.u64 %rd3, %rd5; mov.u64 %rd5, %rd4; mov.u64 %rd4, %rd1; @%p1 bra L;",
        "{ .reg .b64 t; mov.u64 t, %rd1; { .reg .b64 t; mov.u64 t, 0; } mov.u64 %rd3, t; }",
    ];
    for way in ways {
        let [a, b] = two(&format!("{way}\nst.global.u32 [%rd3], 1;"));
        assert_eq!((&a[..], &b[..]), ("pointer:global write", "scalar:u64 read"), "{way}");
    }
}

#[test]
fn an_index_is_told_from_its_base() {
    let number = "scalar:u64 read";
    let (read, write) = ("pointer:global read", "pointer:global write");
    // What is scaled is an index, whichever side it is on.
    for sum in ["add.s64 %rd4, %rd1, %rd3;", "add.s64 %rd4, %rd3, %rd1;"] {
        for scale in ["shl.b64 %rd3, %rd2, 2;", "mul.lo.s64 %rd3, %rd2, %rd2;"] {
            let [a, b] = two(&format!("{scale} {sum} st.global.u32 [%rd4], 1;"));
            assert_eq!((&a[..], &b[..]), (write, number), "{scale} {sum}");
        }
    }
    let [a, b] = two("mad.lo.s64 %rd4, %rd2, 4, %rd1; st.global.u32 [%rd4], 1;");
    assert_eq!((&a[..], &b[..]), (write, number));
    // What is added to a pointer that is declared, or used alone elsewhere, is an index.
    let [a, b] = declared("add.s64 %rd4, %rd2, %rd1; st.global.u32 [%rd4], 1;");
    assert_eq!((&a[..], &b[..]), (write, number));
    let [a, b] = two("cvta.to.global.u64 %rd3, %rd1; add.s64 %rd4, %rd3, %rd2; st.global.u32 [%rd4], 1;");
    assert_eq!((&a[..], &b[..]), (write, number));
    let [a, b] = two("ld.global.u32 %r1, [%rd1]; add.s64 %rd4, %rd1, %rd2; ld.global.u32 %r1, [%rd4];");
    assert_eq!((&a[..], &b[..]), (read, number));
    // A pointer that is advanced by a parameter in a loop.
    let [a, b] =
        declared("mov.u64 %rd3, %rd1; L: st.global.u32 [%rd3], 1; add.s64 %rd3, %rd3, %rd2; @%p1 bra L;");
    assert_eq!((&a[..], &b[..]), (write, number));
    // Numbers in shared memory are offsets.
    let [a, b] = two("cvt.u32.u64 %r1, %rd2; st.shared.u32 [%r1], 1; ld.global.u32 %r2, [%rd1];");
    assert_eq!((&a[..], &b[..]), (read, number));
}

#[test]
fn what_is_unclear_counts_for_all() {
    let write = "either:u64 write";
    // Nothing tells which of the two is the base.
    let [a, b] = two("add.s64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], 1;");
    assert_eq!((&a[..], &b[..]), (write, write));
    // Either of them.
    let [a, b] = two("selp.b64 %rd3, %rd1, %rd2, %p1; st.global.u32 [%rd3], 1;");
    assert_eq!((&a[..], &b[..]), (write, write));
    // The distance of two pointers leads from one to the other, and may be taken either way round.
    for distance in [
        "sub.s64 %rd3, %rd2, %rd1; add.s64 %rd4, %rd1, %rd3;",
        "sub.s64 %rd3, %rd1, %rd2; sub.s64 %rd4, %rd1, %rd3;",
        "neg.s64 %rd3, %rd1; add.s64 %rd3, %rd3, %rd2; add.s64 %rd4, %rd1, %rd3;",
        "xor.b64 %rd3, %rd1, %rd2; xor.b64 %rd4, %rd3, %rd1;",
    ] {
        let [_, b] = declared(&format!("{distance} st.global.u32 [%rd4], 1;"));
        assert_eq!(b, write, "{distance}");
    }
    // A register that is a pointer first and an index later does not make its neighbour an index.
    let [_, b] = declared(
        "ld.global.u32 %r1, [%rd1]; mul.wide.u32 %rd1, %r1, 4; add.s64 %rd3, %rd2, %rd1; st.global.u32 [%rd3], 1;",
    );
    assert_eq!(b, write);
    // Nor does an offset in shared memory.
    let [a, _] = two(
        "cvt.u32.u64 %r1, %rd2; st.shared.u32 [%r1], 1; add.s64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], 1;",
    );
    assert_eq!(a, write);
    // Nor does a number that is added to a pointer from memory.
    let [_, b] = declared(
        "ld.global.u64 %rd3, [%rd1]; add.s64 %rd4, %rd3, %rd2; ld.global.u32 %r1, [%rd4];\n\
         add.s64 %rd5, %rd2, %rd3; st.global.u32 [%rd5], 1;",
    );
    assert_eq!(b, "either:u64 read-write");
    // Though what is used by itself elsewhere is a pointer.
    let [_, b] = declared(
        "ld.global.u64 %rd3, [%rd1]; add.s64 %rd4, %rd3, %rd2; ld.global.u32 %r1, [%rd4];\n\
         st.global.u32 [%rd2], %r1;",
    );
    assert_eq!(b, "pointer:global read-write");
}

#[test]
fn values_that_leave_are_unknown() {
    for way in [
        "st.global.u64 [%rd1], %rd2;",
        "st.shared.v2.u64 [%r1], {%rd2, %rd2};",
        "atom.global.exch.b64 %rd3, [%rd1], %rd2;",
        "mov.b64 {%r1, %r2}, %rd2; st.global.u32 [%rd1], %r2;",
        "{ .param .b64 p0; st.param.b64 [p0], %rd2; call f, (p0); }",
        "call f, (%rd2);",
        "tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%rd9], %rd2;",
    ] {
        assert_eq!(declared(way)[1], "scalar:u64 unknown", "{way}");
    }
    let [_, b] = declared("st.shared.u64 [%r1], %rd2; ld.global.u32 %r1, [%rd2];");
    assert_eq!(b, "pointer:global unknown");
    // What was loaded through a pointer is not followed, and a number made of one is a number.
    let [a, b] =
        declared("ld.global.u64 %rd3, [%rd1]; st.global.u64 [%rd3], 0; st.global.u64 [%rd3+8], %rd3;");
    assert_eq!((&a[..], &b[..]), ("pointer:global read", "scalar:u64 read"));
    let [_, b] = declared("mul.lo.s64 %rd3, %rd2, 3; st.global.u64 [%rd1], %rd3;");
    assert_eq!(b, "scalar:u64 read");
}

#[test]
fn spaces_are_those_declared_or_used() {
    let params =
        ".param .u64 .ptr a, .param .u64 .ptr .shared b, .param .u64 .ptr .const .align 8 c, .param .u64 d";
    let loads =
        "ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c]; ld.param.u64 %rd4, [d];";
    let body = "st.u32 [%rd1], 1; st.shared.u32 [%rd2], 1; ld.const.u32 %r1, [%rd3];\n\
                st.global.u32 [%rd4], 1; st.u32 [%rd4], 1;";
    let expected =
        ["pointer:generic write", "pointer:shared write", "pointer:const read", "pointer:generic write"];
    assert_eq!(judged(params, &format!("{loads}\n{body}")), expected);
}

#[test]
fn names_in_inner_blocks_hide_parameters() {
    let body = "{ .reg .b64 a; .reg .b64 b<2>; mov.u64 a, 0; mov.u64 b1, 0; st.global.u64 [a], b1; }";
    assert_eq!(judged(".param .u64 a, .param .u64 b1", body), ["scalar:u64 unused", "scalar:u64 unused"]);
}

#[test]
fn small_addresses() {
    let text = ".version 6.0\n.target sm_50\n.address_size 32\n.entry k(.param .u32 a, .param .u64 b)\n{\n\
                .reg .b32 %r<3>; .reg .b64 %rd<2>;\nld.param.u32 %r1, [a]; ld.param.u64 %rd1, [b];\n\
                st.global.u64 [%r1], %rd1;\nret;\n}\n";
    let kernel = parse(text).unwrap().signatures().remove(0);
    let kinds: Vec<_> = kernel.parameters.iter().map(|p| (p.kind, p.access)).collect();
    let pointer = ParameterKind::Pointer(PointerSpace::Global);
    assert_eq!(kinds, [(pointer, Access::Write), (ParameterKind::Scalar(Type::U64), Access::Read)]);
}

#[test]
fn shared_memory_is_what_the_kernel_can_reach() {
    let variables = ".shared .align 4 .b8 small[6];\n.shared .align 16 .b8 large[32];\n.shared .f64 unused;\n\
         .extern .shared .align 16 .b8 open[];\n.func far()\n{\n.reg .b32 %r<2>;\nmov.u32 %r1, large;\nret;\n}\n\
         .func near()\n{\ncall far;\nret;\n}\n.global .u64 table[1] = {far};\n";
    let of = |body: &str| {
        let kernel = format!(".entry k()\n{{\n.reg .b32 %r<2>; .reg .b64 %rd<2>;\n{body}\nret;\n}}\n");
        let kernel = one(&format!("{variables}{kernel}"));
        (kernel.shared_bytes, kernel.dynamic_shared)
    };
    assert_eq!(of(""), (0, false));
    assert_eq!(of("st.shared.u32 [small+4], 1;"), (6, false));
    assert_eq!(of("mov.u32 %r1, large; st.shared.u32 [small], 1;"), (48, false));
    assert_eq!(of("mov.u32 %r1, open;"), (0, true));
    assert_eq!(of("call near;"), (32, false));
    assert_eq!(of("mov.u64 %rd1, table;"), (32, false));
    assert_eq!(of("P: .callprototype _ (); call %rd1, (), P;"), (32, false));
    assert_eq!(of(".shared .f32 own[3]; .shared .f32 other; st.shared.f32 [own], 0f00000000;"), (12, false));
}

#[test]
fn kernels_of_other_compilers() {
    let read = |name: &str| {
        let path = format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
        parse(&std::fs::read_to_string(path).unwrap()).unwrap().signatures()
    };
    let triton = read("triton/scaled_add_sm90.ptx").remove(0);
    let trailing = &triton.parameters[triton.parameters.len() - 2..];
    assert!(trailing.iter().all(|p| p.access == Access::Unused), "{triton}");
    let written = triton.parameters.iter().filter(|p| p.access.may_write()).count();
    assert_eq!((written, triton.required_block), (1, Some([128, 1, 1])), "{triton}");
    let matmul = read("triton/matmul_sm80.ptx").remove(0);
    assert!(matmul.dynamic_shared);
    let accesses: Vec<Access> = matmul.parameters[..3].iter().map(|p| p.access).collect();
    assert_eq!(accesses, [Access::Read, Access::Read, Access::Write]);
}

#[test]
fn errors_of_the_text_form_say_where() {
    let head = "kernel k block - max-block - cluster - max-cluster - shared 0 dynamic 0\n";
    let cases = [
        (
            "param a 8 8 bytes read".to_owned(),
            "1:1: found `param`, expected `kernel` before the first `param`",
        ),
        ("kernel".to_owned(), "1:7: found the end of the line, expected a name"),
        ("kernel a-b".to_owned(), "1:8: found `a-b`, expected a name"),
        ("kernel k blok".to_owned(), "1:10: found `blok`, expected `block`"),
        ("kernel k block 1,2,3,4".to_owned(), "1:16: found `1,2,3,4`, expected `-` or three numbers `x,y,z`"),
        (format!("{head}param a 8 08"), "2:11: found `08`, expected a number"),
        (
            format!("{head}param a 8 8 pointer:moon"),
            "2:13: found `pointer:moon`, expected `scalar:TYPE`, `pointer:SPACE`, `either:TYPE`, `tensor-map` or `bytes`",
        ),
        (
            format!("{head}param a 8 8 bytes maybe"),
            "2:19: found `maybe`, expected `unused`, `read`, `write`, `read-write` or `unknown`",
        ),
        (format!("{head}param a 8 8 bytes read x"), "2:24: found `x`, expected the end of the line"),
        (format!("{head}what"), "2:1: found `what`, expected `kernel` or `param`"),
        (head.replace("dynamic 0", "dynamic 2"), "1:71: found `2`, expected `0` or `1`"),
    ];
    for (text, expected) in cases {
        assert_eq!(signatures_from_text(&text).unwrap_err().to_string(), expected);
    }
    let parsed = |text: &str| text.parse::<Signature>().map_err(|error: PtxError| error.to_string());
    assert!(parsed(head).is_ok());
    assert_eq!(
        parsed("\n").unwrap_err(),
        "1:1: found no kernel, expected one line that begins with `kernel`"
    );
    assert_eq!(
        parsed(&head.repeat(2)).unwrap_err(),
        "1:1: found several kernels, expected one line that begins with `kernel`"
    );
}

fn signature() -> impl Strategy<Value = Signature> {
    let spaces = [
        PointerSpace::Global,
        PointerSpace::Shared,
        PointerSpace::Local,
        PointerSpace::Const,
        PointerSpace::Generic,
    ];
    let kind = prop_oneof![
        select(Type::ALL).prop_map(ParameterKind::Scalar),
        select(spaces.to_vec()).prop_map(ParameterKind::Pointer),
        select(Type::ALL).prop_map(ParameterKind::Either),
        Just(ParameterKind::TensorMap),
        Just(ParameterKind::Bytes),
    ];
    let accesses = [Access::Unused, Access::Read, Access::Write, Access::ReadWrite, Access::Unknown];
    let parameter =
        ("[a-zA-Z_$%][a-zA-Z0-9_$]{0,20}", any::<u32>(), any::<u32>(), kind, select(accesses.to_vec()))
            .prop_map(|(name, bytes, align, kind, access)| Parameter { name, bytes, align, kind, access });
    let extents = || proptest::option::of(any::<[u32; 3]>());
    let limits = (extents(), extents(), extents(), proptest::option::of(any::<u32>()));
    let parameters = proptest::collection::vec(parameter, 0..5);
    ("[a-zA-Z_$%][a-zA-Z0-9_$]{0,40}", parameters, limits, any::<u32>(), any::<bool>()).prop_map(
        |(name, parameters, limits, shared_bytes, dynamic_shared)| Signature {
            name,
            parameters,
            required_block: limits.0,
            max_block: limits.1,
            required_cluster: limits.2,
            max_cluster: limits.3,
            shared_bytes,
            dynamic_shared,
        },
    )
}

proptest! {
    #[test]
    fn what_is_printed_parses_back(signatures in proptest::collection::vec(signature(), 0..4)) {
        let text = signatures_to_text(&signatures);
        prop_assert_eq!(signatures_from_text(&text).unwrap(), signatures);
    }

    #[test]
    fn no_text_panics(
        text in "((kernel|param|block|max-block|cluster|max-cluster|shared|dynamic|-|1,2,3|8|k|é|scalar:u32|read|\n|\\PC)[ \t]?){0,30}",
    ) {
        if let Ok(signatures) = signatures_from_text(&text) {
            prop_assert_eq!(signatures_from_text(&signatures_to_text(&signatures)).unwrap(), signatures);
        }
    }
}
