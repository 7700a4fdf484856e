//! The table of instruction forms.
//!
//! One row a form:
//!
//! ```text
//! opcode.modifiers   operands   ; needs
//! ```
//!
//! **Modifiers.** `.a` must be there, `.a|b` is a choice, `{.a|b}` may be missing. `.T=u32|s32` binds what was chosen to
//! the letter `T`. A word may raise what the form needs: `{.L2::cache_hint@7.4/sm_80}`. `m64n[8-256/8]k16` stands for
//! the shapes with `n` from 8 to 256 in steps of 8. The words before the first choice name the operation and have a fixed
//! place; the others may come in any order.
//!
//! **Operands**, separated by commas; alternatives for one operand are separated by `/`.
//!
//! ```text
//! u32, T, 2T       source of a type, of the bound type, of twice its width: a register or a number
//! =u32             destination: a register            =u32_    the same, or `_`
//! =u32|p           a register, or a pair `d|p`        =p|p     a predicate, or a pair `p|q`
//! =u32&p           a pair `d|p`                       u32#     a register, not a number
//! T+               the register may be wider than the type
//! T*V              a list `{a, b}` of as many as the bound word says (`v4`, `x2`, `3d`), for vectors at most 128 bits;
//!                  a single one if the word is missing
//! {b32*4}, {f32*n/2}, {u16*N-2}, {b32*N*2}   a list of 4, of half the `n` of the shape, of two less than the word
//!                  says, of twice as many
//! p, !p            a predicate; one that may be negated
//! imm, imm(0..7), imm(4,8)   an integer constant, with the values it may have
//! []               an address                         [{s32*N}]  an address with coordinates
//! [t]              an address in tensor memory
//! var, sreg        the address of a variable, a special register
//! label, func, group   a label, a function, operands in parentheses
//! X?               may be missing                     X<word>    there exactly when the modifier is
//! ```
//!
//! **Needs.** The lowest version and target; several, separated by `/`, where any of them will do. A row without needs
//! holds from PTX 6.0 and sm_50 on: the table does not tell older ones apart.
//!
//! A version marked `~` is that of the documentation; the assembler takes the form with lower ones, too.
//!
//! `let name = text` makes `$name` stand for the text in the rows below.
//!
//! The rows say what ptxas accepts, which the tests prove by assembling samples of all of them.

/// The rows, see the head of the module.
pub(super) const TABLE: &str = r"
let rnd = rn|rz|rm|rp
let irnd = rni|rzi|rmi|rpi
let int = u16|s16|u32|s32|u64|s64
let int8 = u8|s8|u16|s16|u32|s32|u64|s64
let wide = u32|s32|u64|s64

# Integer arithmetic.
add.T=$int                      =T, T, T
add.sat.s32                     =s32, s32, s32
add.T=u16x2|s16x2               =T, T, T         ; 8.0 sm_90
add.cc.T=$wide                  =T, T, T
addc{.cc}.T=$wide               =T, T, T
sub.T=$int                      =T, T, T
sub.sat.s32                     =s32, s32, s32
sub.cc.T=$wide                  =T, T, T
subc{.cc}.T=$wide               =T, T, T
mul.hi|lo.T=$int                =T, T, T
mul.wide.T=u16|s16|u32|s32      =2T, T, T
mad.hi|lo.T=$int                =T, T, T, T
mad.wide.T=u16|s16|u32|s32      =2T, T, T, 2T
mad.hi.sat.s32                  =s32, s32, s32, s32
mad.hi|lo.cc.T=$wide            =T, T, T, T
madc.hi|lo{.cc}.T=$wide         =T, T, T, T
mul24.hi|lo.T=u32|s32           =T, T, T
mad24.hi|lo.T=u32|s32           =T, T, T, T
mad24.hi.sat.s32                =s32, s32, s32, s32
sad.T=$int                      =T, T, T, T
div.T=$int                      =T, T, T
rem.T=$int                      =T, T, T
abs.T=s16|s32|s64               =T, T
neg.T=s16|s32|s64               =T, T
min.T=$int                      =T, T, T
min.T=u16x2|s16x2               =T, T, T         ; 8.0 sm_90
min.relu.T=s16x2|s32            =T, T, T         ; 8.0 sm_90
max.T=$int                      =T, T, T
max.T=u16x2|s16x2               =T, T, T         ; 8.0 sm_90
max.relu.T=s16x2|s32            =T, T, T         ; 8.0 sm_90
popc.T=b32|b64                  =u32, T
clz.T=b32|b64                   =u32, T
bfind{.shiftamt}.T=$wide        =u32, T
fns.b32                         =b32, b32, b32, s32
brev.T=b32|b64                  =T, T
bfe.T=$wide                     =T, T, u32, u32
bfi.T=b32|b64                   =T, T, T, u32, u32
szext.clamp|wrap.T=u32|s32      =T, T, u32       ; 7.6 sm_70
bmsk.clamp|wrap.b32             =b32, u32, u32   ; 7.6 sm_70
dp4a.T=u32|s32.S=u32|s32        =b32, T, S, b32  ; 6.0 sm_61
dp2a.lo|hi.T=u32|s32.S=u32|s32  =b32, T, S, b32  ; 6.0 sm_61

# Floating-point arithmetic.
add{.$rnd}{.ftz}{.sat}.f32                 =f32, f32, f32
add{.$rnd}.f64                             =f64, f64, f64
add{.rn}{.ftz}{.sat}.T=f16|f16x2           =T, T, T                     ; 6.0 sm_53
add{.rn}.T=bf16|bf16x2                     =T, T, T                     ; 7.8 sm_90
add{.$rnd}{.ftz}.f32x2                     =f32x2, f32x2, f32x2         ; 8.6 sm_100
add{.$rnd}{.sat}.f32.T=f16|bf16            =f32, T, f32                 ; 8.6 sm_100
sub{.$rnd}{.ftz}{.sat}.f32                 =f32, f32, f32
sub{.$rnd}.f64                             =f64, f64, f64
sub{.rn}{.ftz}{.sat}.T=f16|f16x2           =T, T, T                     ; 6.0 sm_53
sub{.rn}.T=bf16|bf16x2                     =T, T, T                     ; 7.8 sm_90
sub{.$rnd}{.ftz}.f32x2                     =f32x2, f32x2, f32x2         ; 8.6 sm_100
sub{.$rnd}{.sat}.f32.T=f16|bf16            =f32, T, f32                 ; 8.6 sm_100
mul{.$rnd}{.ftz}{.sat}.f32                 =f32, f32, f32
mul{.$rnd}.f64                             =f64, f64, f64
mul{.rn}{.ftz}{.sat}.T=f16|f16x2           =T, T, T                     ; 6.0 sm_53
mul{.rn}.T=bf16|bf16x2                     =T, T, T                     ; 7.8 sm_90
mul{.$rnd}{.ftz}.f32x2                     =f32x2, f32x2, f32x2         ; 8.6 sm_100
fma.$rnd{.ftz}{.sat}.f32                   =f32, f32, f32, f32
fma.$rnd.f64                               =f64, f64, f64, f64
fma.rn{.ftz}{.sat}.T=f16|f16x2             =T, T, T, T                  ; 6.0 sm_53
fma.rn{.ftz}.relu.T=f16|f16x2              =T, T, T, T                  ; 7.0 sm_80
fma.rn{.relu}.T=bf16|bf16x2                =T, T, T, T                  ; 7.0 sm_80
fma.rn.oob{.relu}.T=f16|f16x2|bf16|bf16x2  =T, T, T, T                  ; 8.1 sm_90
fma.$rnd{.ftz}.f32x2                       =f32x2, f32x2, f32x2, f32x2  ; 8.6 sm_100
fma.$rnd{.sat}.f32.T=f16|bf16              =f32, T, T, f32              ; 8.6 sm_100
mad.$rnd{.ftz}{.sat}.f32                   =f32, f32, f32, f32
mad.$rnd.f64                               =f64, f64, f64, f64
div.approx|full{.ftz}.f32                  =f32, f32, f32
div.$rnd{.ftz}.f32                         =f32, f32, f32
div.$rnd.f64                               =f64, f64, f64
abs{.ftz}.f32                              =f32, f32
abs.f64                                    =f64, f64
abs{.ftz}.T=f16|f16x2                      =T, T                        ; 6.5 sm_53
abs.T=bf16|bf16x2                          =T, T                        ; 7.0 sm_80
neg{.ftz}.f32                              =f32, f32
neg.f64                                    =f64, f64
neg{.ftz}.T=f16|f16x2                      =T, T                        ; 6.0 sm_53
neg.T=bf16|bf16x2                          =T, T                        ; 7.0 sm_80
min{.ftz}.f32                              =f32, f32, f32
min{.ftz}.NaN.f32                          =f32, f32, f32               ; 7.0 sm_80
min{.ftz}{.NaN}.xorsign.abs.f32            =f32, f32, f32               ; 7.2 sm_86
min{.ftz}{.NaN}{.abs}.f32                  =f32, f32, f32, f32          ; 8.8 sm_100
min.f64                                    =f64, f64, f64
min{.ftz}{.NaN}.T=f16|f16x2                =T, T, T                     ; 7.0 sm_80
min{.ftz}{.NaN}.xorsign.abs.T=f16|f16x2    =T, T, T                     ; 7.2 sm_86
min{.NaN}.T=bf16|bf16x2                    =T, T, T                     ; 7.0 sm_80
min{.NaN}.xorsign.abs.T=bf16|bf16x2        =T, T, T                     ; 7.2 sm_86
max{.ftz}.f32                              =f32, f32, f32
max{.ftz}.NaN.f32                          =f32, f32, f32               ; 7.0 sm_80
max{.ftz}{.NaN}.xorsign.abs.f32            =f32, f32, f32               ; 7.2 sm_86
max{.ftz}{.NaN}{.abs}.f32                  =f32, f32, f32, f32          ; 8.8 sm_100
max.f64                                    =f64, f64, f64
max{.ftz}{.NaN}.T=f16|f16x2                =T, T, T                     ; 7.0 sm_80
max{.ftz}{.NaN}.xorsign.abs.T=f16|f16x2    =T, T, T                     ; 7.2 sm_86
max{.NaN}.T=bf16|bf16x2                    =T, T, T                     ; 7.0 sm_80
max{.NaN}.xorsign.abs.T=bf16|bf16x2        =T, T, T                     ; 7.2 sm_86
rcp.approx{.ftz}.f32                       =f32, f32
rcp.$rnd{.ftz}.f32                         =f32, f32
rcp.$rnd.f64                               =f64, f64
rcp.approx.ftz.f64                         =f64, f64
sqrt.approx{.ftz}.f32                      =f32, f32
sqrt.$rnd{.ftz}.f32                        =f32, f32
sqrt.$rnd.f64                              =f64, f64
rsqrt.approx{.ftz}.f32                     =f32, f32
rsqrt.approx{.ftz}.f64                     =f64, f64
sin.approx{.ftz}.f32                       =f32, f32
cos.approx{.ftz}.f32                       =f32, f32
lg2.approx{.ftz}.f32                       =f32, f32
ex2.approx{.ftz}.f32                       =f32, f32
ex2.approx.T=f16|f16x2                     =T, T                        ; 7.0 sm_75
ex2.approx.ftz.T=bf16|bf16x2               =T, T                        ; 7.8 sm_90
tanh.approx.f32                            =f32, f32                    ; 7.0 sm_75
tanh.approx.T=f16|f16x2                    =T, T                        ; 7.0 sm_75
tanh.approx.T=bf16|bf16x2                  =T, T                        ; 7.8 sm_90
copysign.T=f32|f64                         =T, T, T
testp.finite|infinite|number|notanumber|normal|subnormal.T=f32|f64  =p, T

# Comparison and selection.
let cmpu = eq|ne|lt|le|gt|ge|lo|ls|hi|hs
let cmps = eq|ne|lt|le|gt|ge
let cmpf = eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan
let bool = and|or|xor
setp.eq|ne.T=b16|b32|b64                     =p|p, T, T
setp.eq|ne.$bool.T=b16|b32|b64               =p|p, T, T, !p
setp.$cmpu.T=u16|u32|u64                     =p|p, T, T
setp.$cmpu.$bool.T=u16|u32|u64               =p|p, T, T, !p
setp.$cmps.T=s16|s32|s64                     =p|p, T, T
setp.$cmps.$bool.T=s16|s32|s64               =p|p, T, T, !p
setp.$cmpf{.ftz}.f32                         =p|p, f32, f32
setp.$cmpf.$bool{.ftz}.f32                   =p|p, f32, f32, !p
setp.$cmpf.f64                               =p|p, f64, f64
setp.$cmpf.$bool.f64                         =p|p, f64, f64, !p
setp.$cmpf{.ftz}.f16                         =p, f16, f16               ; 6.0 sm_53
setp.$cmpf{.ftz}.f16x2                       =p|p, f16x2, f16x2         ; 6.0 sm_53
setp.$cmpf.$bool{.ftz}.f16                   =p, f16, f16, !p           ; 6.0 sm_53
setp.$cmpf.$bool{.ftz}.f16x2                 =p|p, f16x2, f16x2, !p     ; 6.0 sm_53
setp.$cmpf.bf16                              =p, bf16, bf16             ; 7.8 sm_90
setp.$cmpf.bf16x2                            =p|p, bf16x2, bf16x2       ; 7.8 sm_90
setp.$cmpf.$bool.bf16                        =p, bf16, bf16, !p#        ; 7.8 sm_90
setp.$cmpf.$bool.bf16x2                      =p|p, bf16x2, bf16x2, !p#  ; 7.8 sm_90
set.eq|ne.D=u32|s32|f32.T=b16|b32|b64        =D, T, T
set.eq|ne.$bool.D=u32|s32|f32.T=b16|b32|b64  =D, T, T, !p
set.$cmpu.D=u32|s32|f32.T=u16|u32|u64        =D, T, T
set.$cmpu.$bool.D=u32|s32|f32.T=u16|u32|u64  =D, T, T, !p
set.$cmps.D=u32|s32|f32.T=s16|s32|s64        =D, T, T
set.$cmps.$bool.D=u32|s32|f32.T=s16|s32|s64  =D, T, T, !p
set.$cmpf{.ftz}.D=u32|s32|f32.f32            =D, f32, f32
set.$cmpf.$bool{.ftz}.D=u32|s32|f32.f32      =D, f32, f32, !p
set.$cmpf.D=u32|s32|f32.f64                  =D, f64, f64
set.$cmpf.$bool.D=u32|s32|f32.f64            =D, f64, f64, !p
set.$cmpf{.ftz}.f16.f16                      =f16, f16, f16             ; 6.0 sm_53
set.$cmpf{.ftz}.D=u16|s16|u32|s32.f16        =D, f16, f16               ; 6.5 sm_53
set.$cmpf.$bool{.ftz}.f16.f16                =f16, f16, f16, !p         ; 6.0 sm_53
set.$cmpf.$bool{.ftz}.D=u16|s16|u32|s32.f16  =D, f16, f16, !p           ; 6.5 sm_53
set.$cmpf{.ftz}.f16x2.f16x2                  =f16x2, f16x2, f16x2       ; 6.0 sm_53
set.$cmpf{.ftz}.D=u32|s32.f16x2              =D, f16x2, f16x2           ; 6.5 sm_53
set.$cmpf.$bool{.ftz}.f16x2.f16x2            =f16x2, f16x2, f16x2, !p   ; 6.0 sm_53
set.$cmpf.$bool{.ftz}.D=u32|s32.f16x2        =D, f16x2, f16x2, !p       ; 6.5 sm_53
set.$cmpf.D=bf16|u16|s16|u32|s32.bf16        =D, bf16, bf16             ; 7.8 sm_90
set.$cmpf.$bool.D=bf16|u16|s16|u32|s32.bf16  =D, bf16, bf16, !p#        ; 7.8 sm_90
set.$cmpf.D=bf16x2|u32|s32.bf16x2            =D, bf16x2, bf16x2         ; 7.8 sm_90
set.$cmpf.$bool.D=bf16x2|u32|s32.bf16x2      =D, bf16x2, bf16x2, !p#    ; 7.8 sm_90
selp.T=b16|b32|b64|$int|f32|f64              =T, T, T, p
slct.T=b16|b32|b64|$int|f32|f64.s32          =T, T, T, s32
slct{.ftz}.T=b16|b32|b64|$int|f32|f64.f32    =T, T, T, f32

# Logic, shifts, bytes.
and.T=pred|b16|b32|b64               =T, T, T
or.T=pred|b16|b32|b64                =T, T, T
xor.T=pred|b16|b32|b64               =T, T, T
not.T=pred|b16|b32|b64               =T, T
cnot.T=b16|b32|b64                   =T, T
lop3.b32                             =b32, b32, b32, b32, imm(0..255)
lop3.or|and.b32                      =b32_&p, b32, b32, b32, imm(0..255), !p  ; 8.2 sm_70
shf.l|r.clamp|wrap.b32               =b32, b32, b32, u32
shl.T=b16|b32|b64                    =T, T, u32
shr.T=b16|b32|b64|$int               =T, T, u32
prmt{.f4e|b4e|rc8|ecl|ecr|rc16}.b32  =b32, b32, b32, b32

# Moves.
mov.T=b16|b32|b64|$int          =T, T/sreg/var
mov.T=f32|f64                   =T, T
mov.pred                        =pred, pred/sreg
mov.b128                        =b128, b128     ; 8.3 sm_70
mov.b16                         =b16, {b8*2}
mov.b32                         =b32, {b16*2}/{b8*4}
mov.b64                         =b64, {b32*2}/{b16*4}
mov.b128                        =b128, {b64*2}  ; 8.3 sm_70
mov.b16                         ={b8*2}, b16
mov.b32                         ={b16*2}/={b8*4}, b32
mov.b64                         ={b32*2}/={b16*4}, b64
mov.b128                        ={b64*2}, b128  ; 8.3 sm_70
shfl.sync.up|down|bfly|idx.b32  =b32|p, b32, b32, b32, b32
activemask.b32                  =b32            ; 6.2 sm_50

# Loads and stores.
let mem = b8|b16|b32|b64|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64
let vec = {.V=v2|v4}
let scope = cta|cluster@7.8/sm_90|gpu|sys
let scope128 = cta|cluster@8.3/sm_90|gpu|sys@8.4/sm_70
let hint = {.L2::cache_hint@7.4/sm_80}
let ahead = {.L2::64B@7.4/sm_75|L2::128B@7.4/sm_75|L2::256B@7.4/sm_80}
let keep = {.L1::evict_normal@7.4/sm_70|L1::evict_unchanged@7.4/sm_70|L1::evict_first@7.4/sm_70|L1::evict_last@7.4/sm_70|L1::no_allocate@7.4/sm_70}
let any = {.global|local|shared|shared::cta@7.8/sm_50|shared::cluster@7.8/sm_90|const|param|param::entry@8.3/sm_50|param::func@8.3/sm_50}
let data = {.global|shared|shared::cta@7.8/sm_50|shared::cluster@7.8/sm_90}
ld$any$vec.T=$mem                                         =T+*V, []
ld.weak$any$vec.T=$mem                                    =T+*V, []                                     ; 6.0 sm_70
ld$any.b128                                               =b128, []                                     ; 8.3 sm_70
ld{.global|local|shared|const}.ca|cg|cs|lu|cv$vec.T=$mem  =T+*V, []
ld{.global}{.ca|cg|cs|lu|cv}$hint$ahead$vec.T=$mem        =T+*V, [], b64<L2::cache_hint>
ld{.global}$keep$hint$ahead$vec.T=$mem                    =T+*V, [], b64<L2::cache_hint>
ld.volatile$data$vec.T=$mem                               =T+*V, []
ld.relaxed|acquire.$scope$data$vec.T=$mem                 =T+*V, []                                     ; 6.0 sm_70
ld.relaxed|acquire.$scope{.global}$keep$hint$ahead$vec.T=$mem  =T+*V, [], b64<L2::cache_hint>           ; 6.0 sm_70
ld.relaxed|acquire.$scope128$data.b128                    =b128, []                                     ; 8.3 sm_70
ld.mmio.relaxed.sys{.global}.T=$mem                       =T+, []                                       ; 8.2 sm_70
ld.global{.ca|cg|cs}.nc$hint$ahead$vec.T=$mem             =T+*V, [], b64<L2::cache_hint>
ld.global.nc$keep$hint$ahead$vec.T=$mem                   =T+*V, [], b64<L2::cache_hint>
ld.global.nc.b128                                         =b128, []                                     ; 8.3 sm_70
ld.global{.nc}$keep{.L2::evict_normal|L2::evict_first|L2::evict_last}.v4.T=b64|u64|s64|f64  ={T*4}, []  ; 8.8 sm_100
ld.global{.nc}$keep{.L2::evict_normal|L2::evict_first|L2::evict_last}.v8.T=b32|u32|s32|f32  ={T*8}, []  ; 8.8 sm_100
ldu{.global}$vec.T=$mem                                   =T+*V, []
st{.global|local|shared|shared::cta@7.8/sm_50|shared::cluster@7.8/sm_90|param|param::func@8.3/sm_50}$vec.T=$mem  [], T+*V
st.weak$data$vec.T=$mem                                   [], T+*V                                      ; 6.0 sm_70
st$data.b128                                              [], b128                                      ; 8.3 sm_70
st{.global|local|shared}.wb|cg|cs|wt$vec.T=$mem           [], T+*V
st{.global}{.wb|cg|cs|wt}$hint$vec.T=$mem                 [], T+*V, b64<L2::cache_hint>
st{.global}$keep$hint$vec.T=$mem                          [], T+*V, b64<L2::cache_hint>
st.volatile$data$vec.T=$mem                               [], T+*V
st.relaxed|release.$scope$data$vec.T=$mem                 [], T+*V                                      ; 6.0 sm_70
st.relaxed|release.$scope{.global}$keep$hint$vec.T=$mem   [], T+*V, b64<L2::cache_hint>                 ; 6.0 sm_70
st.relaxed|release.$scope128$data.b128                    [], b128                                      ; 8.3 sm_70
st.mmio.relaxed.sys{.global}.T=$mem                       [], T+                                        ; 8.2 sm_70
st.global$keep{.L2::evict_normal|L2::evict_first|L2::evict_last}.v4.T=b64|u64|s64|f64  [], {T*4}        ; 8.8 sm_100
st.global$keep{.L2::evict_normal|L2::evict_first|L2::evict_last}.v8.T=b32|u32|s32|f32  [], {T*8}        ; 8.8 sm_100
st.async{.weak}{.shared::cluster}.mbarrier::complete_tx::bytes$vec.T=b32|b64|u32|u64|s32|s64|f32|f64  [], T*V, []  ; 8.1 sm_90
st.bulk{.weak}{.shared::cta}                              [], u64, imm(0)                               ; 8.6 sm_100
prefetch{.global|local}.L1|L2                             []
prefetch.global.L2::evict_last|L2::evict_normal           []                                            ; 7.4 sm_80
prefetchu.L1                                              []
prefetch{.const|param}.tensormap                          []                                            ; 8.0 sm_90
applypriority{.global}.L2::evict_normal                   [], imm(128)                                  ; 7.4 sm_80
discard{.global}.L2                                       [], imm(128)                                  ; 7.4 sm_80
let first = L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged
let second = {.L2::evict_first|L2::evict_unchanged}
createpolicy.fractional.$first$second.b64      =b64, f32?          ; 7.4 sm_80
createpolicy.range{.global}.$first$second.b64  =b64, [], u32, u32  ; 7.4 sm_80
createpolicy.cvt.L2.b64                        =b64, b64           ; 7.4 sm_80
isspacep.global|const|local|shared|shared::cta@7.8/sm_50|shared::cluster@7.8/sm_90|param@7.7/sm_70|param::entry@8.3/sm_70  =p, b64/b32
cvta.global|const|local|shared|shared::cta@7.8/sm_50|shared::cluster@7.8/sm_90|param@7.7/sm_70|param::entry@8.3/sm_70.u64  =u64, u64/var
cvta.to.global|const|local|shared|shared::cta@7.8/sm_50|shared::cluster@7.8/sm_90|param@7.7/sm_70|param::entry@8.3/sm_70.u64  =u64, u64
mapa{.shared::cluster}.T=u32|u64               =T, T/var, u32      ; 7.8 sm_90
getctarank{.shared::cluster}.T=u32|u64         =u32, T/var         ; 7.8 sm_90

# Conversions.
cvt.T=$int8.S=$int8  =T+, S+
# Only where the source has values that the destination has not.
cvt.sat.u8.S=s8|u16|s16|u32|s32|u64|s64           =u8+, S+
cvt.sat.s8.S=u8|u16|s16|u32|s32|u64|s64           =s8+, S+
cvt.sat.u16.S=s8|s16|u32|s32|u64|s64              =u16+, S+
cvt.sat.s16.S=u16|u32|s32|u64|s64                 =s16+, S+
cvt.sat.u32.S=s8|s16|s32|u64|s64                  =u32+, S+
cvt.sat.s32.S=u32|u64|s64                         =s32+, S+
cvt.sat.u64.S=s8|s16|s32|s64                      =u64, S+
cvt.sat.s64.u64                                   =s64, u64
cvt.$irnd{.ftz}{.sat}.T=$int8.f32                 =T+, f32+
cvt.$irnd{.sat}.T=$int8.f64                       =T+, f64
cvt.$irnd{.sat}.T=$int8.f16                       =T+, f16
cvt.$rnd{.ftz}{.sat}.f32.S=$int8                  =f32, S+
cvt.$rnd{.sat}.f64.S=$int8                        =f64, S+
cvt.$rnd{.sat}.f16.S=$int8                        =f16, S+
cvt{.$irnd}{.ftz}{.sat}.f32.f32                   =f32, f32
cvt{.$irnd}{.sat}.f64.f64                         =f64, f64
cvt{.$irnd}{.sat}.f16.f16                         =f16, f16
cvt{.ftz}{.sat}.f64.f32                           =f64, f32
cvt.$rnd{.ftz}{.sat}.f32.f64                      =f32, f64
cvt{.ftz}{.sat}.f32.f16                           =f32, f16
cvt{.sat}.f64.f16                                 =f64, f16
cvt.$rnd{.ftz}{.sat}.f16.f32                      =f16, f32
cvt.$rnd{.sat}.f16.f64                            =f16, f64
cvt.rn|rz.relu.f16.f32                            =f16, f32           ; 7.0 sm_80
cvt.rn|rz{.relu}.bf16.f32                         =bf16, f32          ; 7.0 sm_80
cvt.f32.bf16                                      =f32, bf16          ; 7.1 sm_80
cvt.ftz.f32.bf16                                  =f32, bf16          ; 7.8 sm_90
cvt.f64.bf16                                      =f64, bf16          ; 7.8 sm_90
cvt.rn|rz{.relu}.f16x2.f32                        =f16x2, f32, f32    ; 7.0 sm_80
cvt.rn|rz{.relu}.bf16x2.f32                       =bf16x2, f32, f32   ; 7.0 sm_80
cvt.rn|rz.satfinite.f16.f32                       =f16, f32           ; 8.1 sm_70
cvt.rn|rz.relu.satfinite.f16.f32                  =f16, f32           ; 8.1 sm_80
cvt.rn|rz{.relu}.satfinite.bf16.f32               =bf16, f32          ; 8.1 sm_80
cvt.rn|rz{.relu}.satfinite.T=f16x2|bf16x2.f32     =T, f32, f32        ; 8.1 sm_80
cvt.rs{.relu}{.satfinite}.T=f16x2|bf16x2.f32      =T, f32, f32, b32#  ; 8.7 sm_100a / 8.7 sm_103a
cvt.$irnd.T=$int8.bf16                            =T+, bf16           ; 7.8 sm_90
cvt.$rnd.bf16.S=$int8                             =bf16, S+           ; 7.8 sm_90
cvt{.$irnd}.bf16.bf16                             =bf16, bf16         ; 7.8 sm_90
cvt{.$rnd}.bf16.f16                               =bf16, f16          ; 7.8 sm_90
cvt.$rnd.bf16.f64                                 =bf16, f64          ; 7.8 sm_90
cvt{.$rnd}.f16.bf16                               =f16, bf16          ; 7.8 sm_90
cvt.rna{.satfinite@8.1/sm_80}.tf32.f32            =b32, f32           ; 7.0 sm_80
cvt.rn|rz{.relu}{.satfinite@8.6/sm_100}.tf32.f32  =b32, f32           ; 7.8 sm_90
cvt.rn.satfinite{.relu}.e4m3x2|e5m2x2.f32         =b16, f32, f32      ; 7.8 sm_90 / 8.1 sm_89
cvt.rn.satfinite{.relu}.e4m3x2|e5m2x2.f16x2       =b16, f16x2         ; 7.8 sm_90 / 8.1 sm_89
cvt.rn{.relu}.f16x2.e4m3x2|e5m2x2                 =f16x2, b16#        ; 7.8 sm_90 / 8.1 sm_89
let mx = 8.6 sm_100a / 8.6 sm_101a / 8.7 sm_120a / 8.8 sm_100f / 8.8 sm_101f / 8.8 sm_120f / 9.0 sm_110f
cvt.rn.satfinite{.relu}.e2m1x2.f32                       =b8, f32, f32        ; $mx
cvt.rn{.relu}.f16x2.e2m1x2                               =f16x2, b8#          ; $mx
cvt.rn.satfinite{.relu}.e2m3x2|e3m2x2.f32                =b16, f32, f32       ; $mx
cvt.rn{.relu}.f16x2.e2m3x2|e3m2x2                        =f16x2, b16#         ; $mx
cvt.rz|rp{.satfinite}.ue8m0x2.f32                        =b16, f32, f32       ; $mx
cvt.rz|rp{.satfinite}.ue8m0x2.bf16x2                     =b16, bf16x2         ; $mx
cvt.rn.bf16x2.ue8m0x2                                    =bf16x2, b16#        ; $mx
cvt.rs{.relu}.satfinite.e4m3x4|e5m2x4|e2m3x4|e3m2x4.f32  =b32, {f32*4}, b32#  ; 8.7 sm_100a / 8.8 sm_103a
cvt.rs{.relu}.satfinite.e2m1x4.f32                       =b16, {f32*4}, b32#  ; 8.7 sm_100a / 8.8 sm_103a
cvt.pack.sat.u16|s16.s32                                 =u32, s32, s32       ; 6.5 sm_72
cvt.pack.sat.u8|s8.s32.b32                               =u32, s32, s32, u32  ; 6.5 sm_72
cvt.pack.sat.u2|s2|u4|s4.s32.b32                         =u32, s32, s32, u32  ; 6.5 sm_75

# Asynchronous copies.
let to = shared|shared::cta@7.8~/sm_80
cp.async.ca.$to.global$hint$ahead  [], [], imm(4,8,16), u32?, b64<L2::cache_hint>  ; 7.0 sm_80
cp.async.cg.$to.global$hint$ahead  [], [], imm(16), u32?, b64<L2::cache_hint>      ; 7.0 sm_80
cp.async.ca.$to.global$hint$ahead  [], [], imm(4,8,16), !p, b64<L2::cache_hint>    ; 7.5 sm_80
cp.async.cg.$to.global$hint$ahead  [], [], imm(16), !p, b64<L2::cache_hint>        ; 7.5 sm_80
cp.async.commit_group                                                              ; 7.0 sm_80
cp.async.wait_group                imm                                             ; 7.0 sm_80
cp.async.wait_all                                                                  ; 7.0 sm_80
cp.async.mbarrier.arrive{.noinc}{.shared|shared::cta@7.8/sm_80}.b64  []            ; 7.0 sm_80
let done = mbarrier::complete_tx::bytes
cp.async.bulk.shared::cluster.global.$done{.multicast::cluster}$hint  [], [], u32, [], u16<multicast::cluster>, b64<L2::cache_hint>  ; 8.0 sm_90
cp.async.bulk.shared::cta.global.$done$hint      [], [], u32, [], b64<L2::cache_hint>    ; 8.6 sm_90
cp.async.bulk.shared::cluster.shared::cta.$done  [], [], u32, []                         ; 8.0 sm_90
cp.async.bulk.global.shared::cta.bulk_group$hint{.cp_mask@8.6/sm_100}  [], [], u32, b64<L2::cache_hint>, u16<cp_mask>  ; 8.0 sm_90
cp.async.bulk.prefetch.L2.global$hint            [], u32, b64<L2::cache_hint>            ; 8.0 sm_90
cp.async.bulk.commit_group                                                               ; 8.0 sm_90
cp.async.bulk.wait_group{.read}                  imm                                     ; 8.0 sm_90
cp.reduce.async.bulk.shared::cluster.shared::cta.$done.and|or|xor.b32  [], [], u32, []   ; 8.0 sm_90
cp.reduce.async.bulk.shared::cluster.shared::cta.$done.add.u32|s32|u64  [], [], u32, []  ; 8.0 sm_90
cp.reduce.async.bulk.shared::cluster.shared::cta.$done.min|max.u32|s32  [], [], u32, []  ; 8.0 sm_90
cp.reduce.async.bulk.shared::cluster.shared::cta.$done.inc|dec.u32  [], [], u32, []      ; 8.0 sm_90
let out = global.shared::cta.bulk_group$hint
cp.reduce.async.bulk.$out.and|or|xor.b32|b64                [], [], u32, b64<L2::cache_hint>  ; 8.0 sm_90
cp.reduce.async.bulk.$out.add.u32|s32|u64|f32|f64           [], [], u32, b64<L2::cache_hint>  ; 8.0 sm_90
cp.reduce.async.bulk.$out.add.noftz.f16|bf16                [], [], u32, b64<L2::cache_hint>  ; 8.0 sm_90
cp.reduce.async.bulk.$out.min|max.u32|s32|u64|s64|f16|bf16  [], [], u32, b64<L2::cache_hint>  ; 8.0 sm_90
cp.reduce.async.bulk.$out.inc|dec.u32                       [], [], u32, b64<L2::cache_hint>  ; 8.0 sm_90

# Tensor copies (TMA).
let tmafrom = shared::cluster.global
let pair = {.cta_group::1@8.6/sm_100a|cta_group::2@8.6/sm_100a}
cp.async.bulk.tensor.N=1d|2d|3d|4d|5d.$tmafrom{.tile}.$done{.multicast::cluster}$hint  [], [{s32*N}], [], u16<multicast::cluster>, b64<L2::cache_hint>  ; 8.0 sm_90
cp.async.bulk.tensor.N=1d|2d|3d|4d|5d.$tmafrom{.tile}.$done{.multicast::cluster}.cta_group::1|cta_group::2$hint  [], [{s32*N}], [], u16<multicast::cluster>, b64<L2::cache_hint>  ; 8.6 sm_100a / 8.6 sm_101a / 8.8 sm_100f / 8.8 sm_101f / 9.0 sm_110f
cp.async.bulk.tensor.N=1d|2d|3d|4d|5d.shared::cta.global{.tile}.$done$hint  [], [{s32*N}], [], b64<L2::cache_hint>  ; 8.6 sm_90
cp.async.bulk.tensor.N=3d|4d|5d.$tmafrom.im2col.$done{.multicast::cluster}$hint  [], [{s32*N}], [], {u16*N-2}, u16<multicast::cluster>, b64<L2::cache_hint>  ; 8.0 sm_90
cp.async.bulk.tensor.2d.$tmafrom.tile::gather4.$done{.multicast::cluster}$hint  [], [{s32*5}], [], u16<multicast::cluster>, b64<L2::cache_hint>  ; 8.6 sm_100a / 8.6 sm_101a / 8.8 sm_100f / 8.8 sm_101f / 9.0 sm_110f
cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.$done$hint  [], [{s32*5}], [], b64<L2::cache_hint>    ; 8.6 sm_100
cp.async.bulk.tensor.N=1d|2d|3d|4d|5d.global.shared::cta{.tile}.bulk_group$hint  [{s32*N}], [], b64<L2::cache_hint>  ; 8.0 sm_90
cp.async.bulk.tensor.N=3d|4d|5d.global.shared::cta.im2col_no_offs.bulk_group$hint  [{s32*N}], [], b64<L2::cache_hint>  ; 8.0 sm_90
cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group$hint  [{s32*5}], [], b64<L2::cache_hint>  ; 8.6 sm_100a / 8.6 sm_101a / 8.8 sm_100f / 8.8 sm_101f / 9.0 sm_110f
cp.reduce.async.bulk.tensor.N=1d|2d|3d|4d|5d.global.shared::cta.add|min|max|inc|dec|and|or|xor{.tile}.bulk_group$hint  [{s32*N}], [], b64<L2::cache_hint>  ; 8.0 sm_90
cp.reduce.async.bulk.tensor.N=3d|4d|5d.global.shared::cta.add|min|max|inc|dec|and|or|xor.im2col_no_offs.bulk_group$hint  [{s32*N}], [], b64<L2::cache_hint>  ; 8.0 sm_90
cp.async.bulk.prefetch.tensor.N=1d|2d|3d|4d|5d.L2.global{.tile}$hint  [{s32*N}], b64<L2::cache_hint>           ; 8.0 sm_90
cp.async.bulk.prefetch.tensor.N=3d|4d|5d.L2.global.im2col$hint  [{s32*N}], {u16*N-2}, b64<L2::cache_hint>      ; 8.0 sm_90
let tmap = 8.3 sm_90a / 8.6 sm_100a / 8.6 sm_101a / 8.7 sm_120a / 8.8 sm_100f / 8.8 sm_101f / 8.8 sm_120f / 9.0 sm_110f
let map = {.global|shared::cta}
tensormap.replace.tile.global_address$map.b1024.b64  [], b64                                                 ; $tmap
tensormap.replace.tile.rank$map.b1024.b32            [], b32                                                 ; $tmap
tensormap.replace.tile.box_dim|global_dim|element_stride$map.b1024.b32  [], imm(0..4), b32                   ; $tmap
tensormap.replace.tile.global_stride$map.b1024.b64   [], imm(0..4), b64                                      ; $tmap
tensormap.replace.tile.elemtype|interleave_layout|swizzle_mode|fill_mode$map.b1024.b32  [], imm              ; $tmap
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.$scope.sync.aligned  [], [], imm(128)  ; 8.3 sm_90

# Atomics and reductions.
let sem = {.relaxed@6.0/sm_70|acquire@6.0/sm_70|release@6.0/sm_70|acq_rel@6.0/sm_70}{.cta@6.0/sm_60|cluster@7.8/sm_90|gpu@6.0/sm_60|sys@6.0/sm_60}
let sem128 = {.relaxed|acquire|release|acq_rel}{.cta|cluster|gpu|sys@8.4/sm_90}
let at = {.global|shared|shared::cta@7.8/sm_50|shared::cluster@7.8/sm_90}
atom$sem$at.and|or|xor.T=b32|b64                              =T_, [], T
atom$sem$at.exch.T=b32|b64                                    =T_, [], T
atom$sem128$at.exch.b128                                      =b128_, [], b128                            ; 8.3 sm_90
atom$sem$at.cas.T=b32|b64                                     =T_, [], T, T
atom$sem$at.cas.b16                                           =b16_, [], b16, b16                         ; 6.3 sm_70
atom$sem128$at.cas.b128                                       =b128_, [], b128, b128                      ; 8.3 sm_90
atom$sem$at.add.T=u32|s32|u64|f32                             =T_, [], T
atom$sem$at.add.f64                                           =f64_, [], f64                              ; 6.0 sm_60
atom$sem$at.add.noftz.f16x2                                   =f16x2_, [], f16x2                          ; 6.2 sm_60
atom$sem$at.add.noftz.f16                                     =f16_, [], f16                              ; 6.3 sm_70
atom$sem$at.add.noftz.T=bf16|bf16x2                           =T, [], T                                   ; 7.8 sm_90
atom$sem$at.min|max.T=u32|s32|u64|s64                         =T_, [], T
atom$sem$at.inc|dec.u32                                       =u32_, [], u32
atom$sem{.global}.and|or|xor|exch.L2::cache_hint.T=b32|b64    =T_, [], T, b64                             ; 7.4 sm_80
atom$sem{.global}.add.L2::cache_hint.T=u32|s32|u64|f32|f64    =T_, [], T, b64                             ; 7.4 sm_80
atom$sem{.global}.add.noftz.L2::cache_hint.T=f16|f16x2        =T_, [], T, b64                             ; 7.4 sm_80
atom$sem{.global}.add.noftz.L2::cache_hint.T=bf16|bf16x2      =T, [], T, b64                              ; 7.8 sm_90
atom$sem{.global}.min|max.L2::cache_hint.T=u32|s32|u64|s64    =T_, [], T, b64                             ; 7.4 sm_80
atom$sem{.global}.inc|dec.L2::cache_hint.u32                  =u32_, [], u32, b64                         ; 7.4 sm_80
atom$sem.global.add$hint.V=v2|v4.f32                          ={f32*V}, [], {f32*V}, b64<L2::cache_hint>  ; 8.1 sm_90
atom$sem.global.add|min|max.noftz$hint.V=v2|v4|v8.T=f16|bf16  ={T*V}, [], {T*V}, b64<L2::cache_hint>      ; 8.1 sm_90
atom$sem.global.add|min|max.noftz$hint.V=v2|v4.T=f16x2|bf16x2  ={T*V}, [], {T*V}, b64<L2::cache_hint>     ; 8.1 sm_90
let redsem = {.relaxed@6.0/sm_70|release@6.0/sm_70}{.cta@6.0/sm_60|cluster@7.8/sm_90|gpu@6.0/sm_60|sys@6.0/sm_60}
red$redsem$at.and|or|xor.T=b32|b64                            [], T
red$redsem$at.add.T=u32|s32|u64|f32                           [], T
red$redsem$at.add.f64                                         [], f64                            ; 6.0 sm_60
red$redsem$at.add.noftz.f16x2                                 [], f16x2                          ; 6.2 sm_60
red$redsem$at.add.noftz.f16                                   [], f16                            ; 6.3 sm_70
red$redsem$at.add.noftz.T=bf16|bf16x2                         [], T                              ; 7.8 sm_90
red$redsem$at.min|max.T=u32|s32|u64|s64                       [], T
red$redsem$at.inc|dec.u32                                     [], u32
red$redsem{.global}.and|or|xor.L2::cache_hint.T=b32|b64       [], T, b64                         ; 7.4 sm_80
red$redsem{.global}.add.L2::cache_hint.T=u32|s32|u64|f32|f64  [], T, b64                         ; 7.4 sm_80
red$redsem{.global}.add.noftz.L2::cache_hint.T=f16|f16x2      [], T, b64                         ; 7.4 sm_80
red$redsem{.global}.add.noftz.L2::cache_hint.T=bf16|bf16x2    [], T, b64                         ; 7.8 sm_90
red$redsem{.global}.min|max.L2::cache_hint.T=u32|s32|u64|s64  [], T, b64                         ; 7.4 sm_80
red$redsem{.global}.inc|dec.L2::cache_hint.u32                [], u32, b64                       ; 7.4 sm_80
red$redsem.global.add$hint.V=v2|v4.f32                        [], {f32*V}, b64<L2::cache_hint>   ; 8.1 sm_90
red$redsem.global.add|min|max.noftz$hint.V=v2|v4|v8.T=f16|bf16  [], {T*V}, b64<L2::cache_hint>   ; 8.1 sm_90
red$redsem.global.add|min|max.noftz$hint.V=v2|v4.T=f16x2|bf16x2  [], {T*V}, b64<L2::cache_hint>  ; 8.1 sm_90
red.async.relaxed.cluster{.shared::cluster}.$done.add|min|max.T=u32|s32  [], T, []               ; 8.1 sm_90
red.async.relaxed.cluster{.shared::cluster}.$done.inc|dec.u32  [], u32, []                       ; 8.1 sm_90
red.async.relaxed.cluster{.shared::cluster}.$done.and|or|xor.b32  [], b32, []                    ; 8.1 sm_90
red.async.relaxed.cluster{.shared::cluster}.$done.add.u64     [], u64, []                        ; 8.1 sm_90
multimem.ld_reduce{.weak}{.global}.min|max.T=u32|s32|u64|s64  =T, []                             ; 8.1 sm_90
multimem.ld_reduce{.weak}{.global}.add.T=u32|s32|u64          =T, []                             ; 8.1 sm_90
multimem.ld_reduce{.weak}{.global}.and|or|xor.T=b32|b64       =T, []                             ; 8.1 sm_90
multimem.ld_reduce{.weak}{.global}.add$vec.f32                =f32*V, []                         ; 8.1 sm_90
multimem.ld_reduce{.weak}{.global}.add|min|max$vec.T=f16x2|bf16x2  =T*V, []                      ; 8.1 sm_90
multimem.st{.weak}{.global}.T=u32|s32|u64|s64|b32|b64         [], T                              ; 8.1 sm_90
multimem.st{.weak}{.global}$vec.T=f32|f16x2|bf16x2            [], T*V                            ; 8.1 sm_90
multimem.red{.relaxed.$scope}{.global}.min|max.T=u32|s32|u64|s64  [], T                          ; 8.1 sm_90
multimem.red{.relaxed.$scope}{.global}.add.T=u32|s32|u64      [], T                              ; 8.1 sm_90
multimem.red{.relaxed.$scope}{.global}.and|or|xor.T=b32|b64   [], T                              ; 8.1 sm_90
multimem.red{.relaxed.$scope}{.global}.add$vec.T=f32|f16x2|bf16x2  [], T*V                       ; 8.1 sm_90

# Warps.
vote.sync.all|any|uni.pred          =p, !p, b32
vote.sync.ballot.b32                =b32, !p, b32
match.any.sync.T=b32|b64            =b32, T, b32    ; 6.0 sm_70
match.all.sync.T=b32|b64            =b32|p, T, b32  ; 6.0 sm_70
redux.sync.add|min|max.T=u32|s32    =T, T, b32      ; 7.0 sm_80
redux.sync.and|or|xor.b32           =b32, b32, b32  ; 7.0 sm_80
redux.sync.min|max{.abs}{.NaN}.f32  =f32, f32, b32  ; 8.6 sm_100a / 8.8 sm_100f
elect.sync                          =b32_&p, b32    ; 8.0 sm_90

# Barriers and fences.
bar{.cta@7.8/sm_50}.sync                                u32, u32?
bar{.cta@7.8/sm_50}.arrive                              u32, u32
bar{.cta@7.8/sm_50}.red.popc.u32                        =u32, u32, u32?, !p
bar{.cta@7.8/sm_50}.red.and|or.pred                     =p, u32, u32?, !p
bar.warp.sync                                           b32
barrier{.cta@7.8/sm_50}.sync{.aligned}                  u32, u32?
barrier{.cta@7.8/sm_50}.arrive{.aligned}                u32, u32
barrier{.cta@7.8/sm_50}.red.popc{.aligned}.u32          =u32, u32, u32?, !p
barrier{.cta@7.8/sm_50}.red.and|or{.aligned}.pred       =p, u32, u32?, !p
barrier.cluster.arrive{.release@8.0/sm_90|relaxed@8.0/sm_90}{.aligned}     ; 7.8 sm_90
barrier.cluster.wait{.acquire@8.0/sm_90}{.aligned}                         ; 7.8 sm_90
fence{.sc|acq_rel}.$scope                                                  ; 6.0 sm_70
fence.acquire|release.$scope                                               ; 8.6~ sm_90
fence.mbarrier_init.release.cluster                                        ; 8.0 sm_90
fence.acquire.sync_restrict::shared::cluster.cluster                       ; 8.6 sm_90
fence.release.sync_restrict::shared::cta.cluster                           ; 8.6 sm_90
fence.proxy.alias                                                          ; 7.5 sm_70
fence.proxy.async{.global|shared::cta|shared::cluster}                     ; 8.0 sm_90
fence.proxy.tensormap::generic.release.$scope                              ; 8.3 sm_90
fence.proxy.tensormap::generic.acquire.$scope           [], imm(128)       ; 8.3 sm_90
fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster  ; 8.6 sm_90
fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster      ; 8.6 sm_90
membar.cta|gl|sys
membar.proxy.alias                                                         ; 7.5 sm_60
griddepcontrol.launch_dependents|wait                                      ; 7.8 sm_90

# Barriers in shared memory.
let in = {.shared|shared::cta@7.8/sm_80}
let scopes = cta|cluster
mbarrier.init$in.b64                                        [], u32                                 ; 7.0 sm_80
mbarrier.inval$in.b64                                       []                                      ; 7.0 sm_80
mbarrier.expect_tx{.relaxed.$scopes}{.shared|shared::cta|shared::cluster}.b64  [], u32              ; 8.0 sm_90
mbarrier.complete_tx{.relaxed.$scopes}{.shared|shared::cta|shared::cluster}.b64  [], u32            ; 8.0 sm_90
mbarrier.arrive$in.b64                                      =b64, []                                ; 7.0 sm_80
mbarrier.arrive$in.b64                                      _, []                                   ; 7.1 sm_80
mbarrier.arrive$in.b64                                      =b64_, [], u32                          ; 7.8 sm_90
mbarrier.arrive.release|relaxed@8.6/sm_90.cta|cluster@8.0/sm_90$in.b64  =b64_, []                   ; 8.0 sm_80
mbarrier.arrive.release|relaxed@8.6/sm_90.$scopes$in.b64    =b64_, [], u32                          ; 8.0 sm_90
mbarrier.arrive{.release|relaxed@8.6/sm_90.$scopes}.shared::cluster.b64  _, [], u32?                ; 8.0 sm_90
mbarrier.arrive.expect_tx{.release|relaxed@8.6/sm_90.$scopes}$in.b64  =b64_, [], u32                ; 8.0 sm_90
mbarrier.arrive.expect_tx{.release|relaxed@8.6/sm_90.$scopes}.shared::cluster.b64  _, [], u32       ; 8.0 sm_90
mbarrier.arrive.noComplete$in.b64                           =b64, [], u32                           ; 7.0 sm_80
mbarrier.arrive_drop$in.b64                                 =b64, []                                ; 7.0 sm_80
mbarrier.arrive_drop$in.b64                                 _, []                                   ; 7.1~ sm_80
mbarrier.arrive_drop$in.b64                                 =b64_, [], u32                          ; 7.8 sm_90
mbarrier.arrive_drop.release|relaxed@8.6/sm_90.cta|cluster@8.0/sm_90$in.b64  =b64_, []              ; 8.0 sm_80
mbarrier.arrive_drop.release|relaxed@8.6/sm_90.$scopes$in.b64  =b64_, [], u32                       ; 8.0 sm_90
mbarrier.arrive_drop{.release|relaxed@8.6/sm_90.$scopes}.shared::cluster.b64  _, [], u32?           ; 8.0 sm_90
mbarrier.arrive_drop.expect_tx{.release|relaxed@8.6/sm_90.$scopes}$in.b64  =b64_, [], u32           ; 8.0 sm_90
mbarrier.arrive_drop.expect_tx{.release|relaxed@8.6/sm_90.$scopes}.shared::cluster.b64  _, [], u32  ; 8.0 sm_90
mbarrier.arrive_drop.noComplete$in.b64                      =b64, [], u32                           ; 7.0 sm_80
mbarrier.test_wait$in.b64                                   =p, [], b64                             ; 7.0 sm_80
mbarrier.test_wait.parity$in.b64                            =p, [], u32                             ; 7.1 sm_80
mbarrier.test_wait.acquire|relaxed@8.6/sm_90.cta|cluster@8.0/sm_90$in.b64  =p, [], b64              ; 8.0 sm_80
mbarrier.test_wait.parity.acquire|relaxed@8.6/sm_90.cta|cluster@8.0/sm_90$in.b64  =p, [], u32       ; 8.0 sm_80
mbarrier.try_wait$in.b64                                    =p, [], b64, u32?                       ; 7.8 sm_90
mbarrier.try_wait.parity$in.b64                             =p, [], u32, u32?                       ; 7.8 sm_90
mbarrier.try_wait.acquire|relaxed@8.6/sm_90.$scopes$in.b64  =p, [], b64, u32?                       ; 8.0 sm_90
mbarrier.try_wait.parity.acquire|relaxed@8.6/sm_90.$scopes$in.b64  =p, [], u32, u32?                ; 8.0 sm_90
mbarrier.pending_count.b64                                  =b32, b64                               ; 7.0 sm_80

# Matrices of a warp.
ldmatrix.sync.aligned.m8n8.N=x1|x2|x4{.trans}{.shared|shared::cta@7.8/sm_75}.b16  ={b32*N}, []  ; 6.5 sm_75
let ldm = 8.6 sm_100a / 8.6 sm_101a / 8.7 sm_120a / 8.8 sm_100f / 8.8 sm_101f / 8.8 sm_120f / 9.0 sm_110f
ldmatrix.sync.aligned.m16n16.x1.trans{.shared|shared::cta}.b8  ={b32*2}, []                          ; $ldm
ldmatrix.sync.aligned.m16n16.x2.trans{.shared|shared::cta}.b8  ={b32*4}, []                          ; $ldm
ldmatrix.sync.aligned.m16n16.x1.trans{.shared|shared::cta}.b8x16.b6x16_p32|b4x16_p64  ={b32*2}, []   ; $ldm
ldmatrix.sync.aligned.m16n16.x2.trans{.shared|shared::cta}.b8x16.b6x16_p32|b4x16_p64  ={b32*4}, []   ; $ldm
ldmatrix.sync.aligned.m8n16.N=x1|x2|x4{.shared|shared::cta}.b8x16.b6x16_p32|b4x16_p64  ={b32*N}, []  ; $ldm
stmatrix.sync.aligned.m8n8.N=x1|x2|x4{.trans}{.shared|shared::cta}.b16  [], {b32*N}                  ; 7.8 sm_90
stmatrix.sync.aligned.m16n8.N=x1|x2|x4.trans{.shared|shared::cta}.b8  [], {b32*N}                    ; $ldm
movmatrix.sync.aligned.m8n8.trans.b16  =b32, b32#                                                    ; 7.8 sm_75

let mma = mma.sync.aligned
$mma.m8n8k4.row|col.row|col.f16.f16.f16.f16   ={b32*4}, {b32*2}, {b32*2}, {b32*4}  ; 6.4 sm_70
$mma.m8n8k4.row|col.row|col.f32.f16.f16.f16   ={f32*8}, {b32*2}, {b32*2}, {b32*4}  ; 6.4 sm_70
$mma.m8n8k4.row|col.row|col.f32.f16.f16.f32   ={f32*8}, {b32*2}, {b32*2}, {f32*8}  ; 6.4 sm_70
$mma.m16n8k8.row.col.f16.f16.f16.f16          ={b32*2}, {b32*2}, {b32*1}, {b32*2}  ; 6.5 sm_75
$mma.m16n8k8.row.col.f32.f16.f16.f32          ={f32*4}, {b32*2}, {b32*1}, {f32*4}  ; 6.5 sm_75
$mma.m16n8k16.row.col.f16.f16.f16.f16         ={b32*2}, {b32*4}, {b32*2}, {b32*2}  ; 7.0 sm_80
$mma.m16n8k16.row.col.f32.f16.f16.f32         ={f32*4}, {b32*4}, {b32*2}, {f32*4}  ; 7.0 sm_80
$mma.m16n8k8.row.col.f32.bf16.bf16.f32        ={f32*4}, {b32*2}, {b32*1}, {f32*4}  ; 7.0 sm_80
$mma.m16n8k16.row.col.f32.bf16.bf16.f32       ={f32*4}, {b32*4}, {b32*2}, {f32*4}  ; 7.0 sm_80
$mma.m16n8k4.row.col.f32.tf32.tf32.f32        ={f32*4}, {b32*2}, {b32*1}, {f32*4}  ; 7.0 sm_80
$mma.m16n8k8.row.col.f32.tf32.tf32.f32        ={f32*4}, {b32*4}, {b32*2}, {f32*4}  ; 7.0 sm_80
$mma.m8n8k4.row.col{.$rnd}.f64.f64.f64.f64    ={f64*2}, {f64*1}, {f64*1}, {f64*2}  ; 7.0 sm_80
$mma.m16n8k4.row.col{.$rnd}.f64.f64.f64.f64   ={f64*4}, {f64*2}, {f64*1}, {f64*4}  ; 7.8 sm_90
$mma.m16n8k8.row.col{.$rnd}.f64.f64.f64.f64   ={f64*4}, {f64*4}, {f64*2}, {f64*4}  ; 7.8 sm_90
$mma.m16n8k16.row.col{.$rnd}.f64.f64.f64.f64  ={f64*4}, {f64*8}, {f64*4}, {f64*4}  ; 7.8 sm_90
let b8 = {.satfinite}.s32.s8|u8.s8|u8.s32
let b4 = {.satfinite}.s32.s4|u4.s4|u4.s32
$mma.m8n8k16.row.col$b8                        ={b32*2}, {b32*1}, {b32*1}, {b32*2}  ; 6.5 sm_75
$mma.m16n8k16.row.col$b8                       ={b32*4}, {b32*2}, {b32*1}, {b32*4}  ; 7.0 sm_80
$mma.m16n8k32.row.col$b8                       ={b32*4}, {b32*4}, {b32*2}, {b32*4}  ; 7.0 sm_80
$mma.m8n8k32.row.col$b4                        ={b32*2}, {b32*1}, {b32*1}, {b32*2}  ; 6.5 sm_75
$mma.m16n8k32.row.col$b4                       ={b32*4}, {b32*2}, {b32*1}, {b32*4}  ; 7.0 sm_80
$mma.m16n8k64.row.col$b4                       ={b32*4}, {b32*4}, {b32*2}, {b32*4}  ; 7.0 sm_80
$mma.m8n8k128.row.col.s32.b1.b1.s32.xor.popc   ={b32*2}, {b32*1}, {b32*1}, {b32*2}  ; 7.0 sm_75
$mma.m16n8k128.row.col.s32.b1.b1.s32.xor.popc  ={b32*4}, {b32*2}, {b32*1}, {b32*4}  ; 7.0 sm_80
$mma.m16n8k256.row.col.s32.b1.b1.s32.xor.popc  ={b32*4}, {b32*4}, {b32*2}, {b32*4}  ; 7.0 sm_80
$mma.m8n8k128.row.col.s32.b1.b1.s32.and.popc   ={b32*2}, {b32*1}, {b32*1}, {b32*2}  ; 7.1 sm_80
$mma.m16n8k128.row.col.s32.b1.b1.s32.and.popc  ={b32*4}, {b32*2}, {b32*1}, {b32*4}  ; 7.1 sm_80
$mma.m16n8k256.row.col.s32.b1.b1.s32.and.popc  ={b32*4}, {b32*4}, {b32*2}, {b32*4}  ; 7.1 sm_80
let f8 = e4m3|e5m2.e4m3|e5m2
$mma.m16n8k32.row.col.f32.$f8.f32  ={f32*4}, {b32*4}, {b32*2}, {f32*4}  ; 8.4 sm_89
$mma.m16n8k32.row.col.f16.$f8.f16  ={b32*2}, {b32*4}, {b32*2}, {b32*2}  ; 8.7 sm_89
$mma.m16n8k16.row.col.f32.$f8.f32  ={f32*4}, {b32*2}, {b32*1}, {f32*4}  ; 8.7 sm_89
$mma.m16n8k16.row.col.f16.$f8.f16  ={b32*2}, {b32*2}, {b32*1}, {b32*2}  ; 8.7 sm_89
let f864 = e4m3|e5m2|e3m2|e2m3|e2m1.e4m3|e5m2|e3m2|e2m3|e2m1
$mma.m16n8k32.row.col.kind::f8f6f4.f32.$f864.f32  ={f32*4}, {b32*4}, {b32*2}, {f32*4}  ; 8.7 sm_120a / 8.8 sm_120f
$mma.m16n8k32.row.col.kind::f8f6f4.f16.$f864.f16  ={b32*2}, {b32*4}, {b32*2}, {b32*2}  ; 8.7 sm_120a / 8.8 sm_120f
let sp = mma.sp|sp::ordered_metadata@8.5/sm_80.sync.aligned
$sp.m16n8k16.row.col.f16.f16.f16.f16    ={b32*2}, {b32*2}, {b32*2}, {b32*2}, b32#, imm(0..3)  ; 7.1 sm_80
$sp.m16n8k32.row.col.f16.f16.f16.f16    ={b32*2}, {b32*4}, {b32*4}, {b32*2}, b32#, imm(0..1)  ; 7.1 sm_80
$sp.m16n8k16.row.col.f32.f16.f16.f32    ={f32*4}, {b32*2}, {b32*2}, {f32*4}, b32#, imm(0..3)  ; 7.1 sm_80
$sp.m16n8k32.row.col.f32.f16.f16.f32    ={f32*4}, {b32*4}, {b32*4}, {f32*4}, b32#, imm(0..1)  ; 7.1 sm_80
$sp.m16n8k16.row.col.f32.bf16.bf16.f32  ={f32*4}, {b32*2}, {b32*2}, {f32*4}, b32#, imm(0..3)  ; 7.1 sm_80
$sp.m16n8k32.row.col.f32.bf16.bf16.f32  ={f32*4}, {b32*4}, {b32*4}, {f32*4}, b32#, imm(0..1)  ; 7.1 sm_80
$sp.m16n8k8.row.col.f32.tf32.tf32.f32   ={f32*4}, {b32*2}, {b32*2}, {f32*4}, b32#, imm(0..3)  ; 7.1 sm_80
$sp.m16n8k16.row.col.f32.tf32.tf32.f32  ={f32*4}, {b32*4}, {b32*4}, {f32*4}, b32#, imm(0..1)  ; 7.1 sm_80
$sp.m16n8k32.row.col$b8                 ={b32*4}, {b32*2}, {b32*2}, {b32*4}, b32#, imm(0..1)  ; 7.1 sm_80
$sp.m16n8k64.row.col$b8                 ={b32*4}, {b32*4}, {b32*4}, {b32*4}, b32#, imm(0)     ; 7.1 sm_80
$sp.m16n8k64.row.col.f32.$f8.f32        ={f32*4}, {b32*4}, {b32*4}, {f32*4}, b32#, imm(0)     ; 8.4 sm_89

# Matrices of a warpgroup.
wgmma.fence|commit_group.sync.aligned       ; 8.0 sm_90a
wgmma.wait_group.sync.aligned          imm  ; 8.0 sm_90a
let wg = wgmma.mma_async.sync.aligned
let sign = imm(1,-1)
let bit = imm(0,1)
$wg.m64n[8-256/8]k16.f32.f16.f16                              ={f32*n/2}, b64, b64, p, $sign, $sign, $bit, $bit  ; 8.0 sm_90a
$wg.m64n[8-256/8]k16.f32.f16.f16                              ={f32*n/2}, {b32*4}, b64, p, $sign, $sign, $bit  ; 8.0 sm_90a
$wg.m64n[8-256/8]k16.f16.f16.f16                              ={b32*n/4}, b64, b64, p, $sign, $sign, $bit, $bit  ; 8.0 sm_90a
$wg.m64n[8-256/8]k16.f16.f16.f16                              ={b32*n/4}, {b32*4}, b64, p, $sign, $sign, $bit  ; 8.0 sm_90a
$wg.m64n[8-256/8]k16.f32.bf16.bf16                            ={f32*n/2}, b64, b64, p, $sign, $sign, $bit, $bit  ; 8.0 sm_90a
$wg.m64n[8-256/8]k16.f32.bf16.bf16                            ={f32*n/2}, {b32*4}, b64, p, $sign, $sign, $bit  ; 8.0 sm_90a
$wg.m64n[8-256/8]k8.f32.tf32.tf32                             ={f32*n/2}, b64/{b32*4}, b64, p, $sign, $sign    ; 8.0 sm_90a
$wg.m64n[8-256/8]k32.f32.$f8                                  ={f32*n/2}, b64/{b32*4}, b64, p, $sign, $sign    ; 8.0 sm_90a
$wg.m64n[8-256/8]k32.f16.$f8                                  ={b32*n/4}, b64/{b32*4}, b64, p, $sign, $sign    ; 8.0 sm_90a
$wg.m64n[8-32/8]k32|m64n[48-256/16]k32.s32.s8.s8{.satfinite}  ={b32*n/2}, b64/{b32*4}, b64, p                  ; 8.0 sm_90a
$wg.m64n[8-32/8]k32|m64n[48-256/16]k32.s32.u8.u8{.satfinite}  ={b32*n/2}, b64/{b32*4}, b64, p                  ; 8.0 sm_90a
$wg.m64n[8-32/8]k32|m64n[48-256/16]k32.s32.s8.u8{.satfinite}  ={b32*n/2}, b64/{b32*4}, b64, p                  ; 8.4 sm_90a
$wg.m64n[8-32/8]k32|m64n[48-256/16]k32.s32.u8.s8{.satfinite}  ={b32*n/2}, b64/{b32*4}, b64, p                  ; 8.4 sm_90a
$wg.m64n[8-32/8]k256|m64n[48-256/16]k256.s32.b1.b1.and.popc   ={b32*n/2}, b64/{b32*4}, b64, p                  ; 8.0 sm_90a
setmaxnreg.inc|dec.sync.aligned.u32                           imm                                              ; 8.0 sm_90a / 8.6 sm_100a / 8.6 sm_101a / 8.7 sm_120a / 8.8 sm_100f / 8.8 sm_101f / 8.8 sm_120f / 9.0 sm_110f

# Tensor memory. All instructions of a kernel must agree on the `cta_group`, which the table cannot tell.
# Matrix products with scales or sparsity (`block_scale`, `sp`, `ws`) have no rows, nor has mma.sync with `block_scale`.
let tc = 8.6 sm_100a / 8.6 sm_101a / 8.8 sm_100f / 8.8 sm_101f / 9.0 sm_110f
tcgen05.alloc.cta_group::1.sync.aligned{.shared::cta}.b32   [], u32                                   ; $tc
tcgen05.dealloc.cta_group::1.sync.aligned.b32               b32, u32                                  ; $tc
tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned                                             ; $tc
tcgen05.commit.cta_group::1.mbarrier::arrive::one{.shared::cluster}.b64  []                           ; $tc
tcgen05.commit.cta_group::1.mbarrier::arrive::one{.shared::cluster}.multicast::cluster.b64  [], u16#  ; $tc
tcgen05.cp.cta_group::1.128x256b|4x256b|128x128b{.b8x16.b6x16_p32|b4x16_p64}  [t], b64                ; $tc
tcgen05.cp.cta_group::1.64x128b.warpx2::02_13|warpx2::01_23{.b8x16.b6x16_p32|b4x16_p64}  [t], b64     ; $tc
tcgen05.cp.cta_group::1.32x128b.warpx4{.b8x16.b6x16_p32|b4x16_p64}  [t], b64                          ; $tc
tcgen05.shift.cta_group::1.down                             [t]                                       ; 8.6 sm_100a / 8.6 sm_101a / 8.8 sm_103a / 9.0 sm_110a
tcgen05.mma.cta_group::1.kind::f16|kind::tf32|kind::f8f6f4|kind::i8@8.6/sm_100a{.collector::a::fill|collector::a::use|collector::a::lastuse|collector::a::discard}  [t], b64/[t], b64, b32, p  ; $tc
tcgen05.alloc.cta_group::2.sync.aligned{.shared::cta}.b32   [], u32                                   ; $tc
tcgen05.dealloc.cta_group::2.sync.aligned.b32               b32, u32                                  ; $tc
tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned                                             ; $tc
tcgen05.commit.cta_group::2.mbarrier::arrive::one{.shared::cluster}.b64  []                           ; $tc
tcgen05.commit.cta_group::2.mbarrier::arrive::one{.shared::cluster}.multicast::cluster.b64  [], u16#  ; $tc
tcgen05.cp.cta_group::2.128x256b|4x256b|128x128b{.b8x16.b6x16_p32|b4x16_p64}  [t], b64                ; $tc
tcgen05.cp.cta_group::2.64x128b.warpx2::02_13|warpx2::01_23{.b8x16.b6x16_p32|b4x16_p64}  [t], b64     ; $tc
tcgen05.cp.cta_group::2.32x128b.warpx4{.b8x16.b6x16_p32|b4x16_p64}  [t], b64                          ; $tc
tcgen05.shift.cta_group::2.down                             [t]                                       ; 8.6 sm_100a / 8.6 sm_101a / 8.8 sm_103a / 9.0 sm_110a
tcgen05.mma.cta_group::2.kind::f16|kind::tf32|kind::f8f6f4|kind::i8@8.6/sm_100a{.collector::a::fill|collector::a::use|collector::a::lastuse|collector::a::discard}  [t], b64/[t], b64, b32, p  ; $tc
tcgen05.ld.sync.aligned.32x32b|16x64b.N=x1|x2|x4|x8|x16|x32|x64|x128{.pack::16b}.b32  ={b32*N}, [t]   ; $tc
tcgen05.ld.sync.aligned.16x128b.N=x1|x2|x4|x8|x16|x32|x64{.pack::16b}.b32  ={b32*N*2}, [t]            ; $tc
tcgen05.ld.sync.aligned.16x256b.N=x1|x2|x4|x8|x16|x32{.pack::16b}.b32  ={b32*N*4}, [t]                ; $tc
tcgen05.ld.sync.aligned.16x32bx2.N=x1|x2|x4|x8|x16|x32|x64|x128{.pack::16b}.b32  ={b32*N}, [t], imm   ; $tc
tcgen05.st.sync.aligned.32x32b|16x64b.N=x1|x2|x4|x8|x16|x32|x64|x128{.unpack::16b}.b32  [t], {b32*N}  ; $tc
tcgen05.st.sync.aligned.16x128b.N=x1|x2|x4|x8|x16|x32|x64{.unpack::16b}.b32  [t], {b32*N*2}           ; $tc
tcgen05.st.sync.aligned.16x256b.N=x1|x2|x4|x8|x16|x32{.unpack::16b}.b32  [t], {b32*N*4}               ; $tc
tcgen05.st.sync.aligned.16x32bx2.N=x1|x2|x4|x8|x16|x32|x64|x128{.unpack::16b}.b32  [t], imm, {b32*N}  ; $tc
tcgen05.wait::ld|wait::st.sync.aligned                                                                ; $tc
tcgen05.fence::before_thread_sync|fence::after_thread_sync                                            ; $tc

# Control flow and the rest.
bra{.uni}               label
brx.idx{.uni}           u32, label  ; 6.0 sm_50
call{.uni}              func
call{.uni}              func/b64, group, label?
call{.uni}              group, func/b64, group, label?
ret{.uni}
exit
trap
brkpt
nanosleep.u32           u32         ; 6.3~ sm_70
pmevent                 imm(0..15)
pmevent.mask            imm
stacksave.T=u32|u64     =T          ; 7.3 sm_52
stackrestore.T=u32|u64  T#          ; 7.3 sm_52
alloca.T=u32|u64        =T, T       ; 7.3 sm_52
";
