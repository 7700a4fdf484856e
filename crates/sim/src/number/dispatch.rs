//! Running a piece of code compiled for AVX2 and FMA where the processor has them, and plain code elsewhere.

/// Whether the processor has what [`fast!`] compiles for; asked once.
#[cfg(target_arch = "x86_64")]
pub(super) fn has_vectors() -> bool {
    use std::sync::OnceLock;
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"))
}

/// `fast!(call; name: Type, .. => Result)` evaluates the call, all of whose parts are inlined, with the best instructions
/// that there are. The names are the variables that the call uses. A call may name the constant `FMA`, which tells it
/// whether `mul_add` is an instruction.
macro_rules! fast {
    ($call:expr; $($name:ident: $ty:ty),* => $result:ty) => {{
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
        fn vectors($($name: $ty),*) -> $result {
            #[allow(dead_code, reason = "few calls ask")]
            const FMA: bool = true;
            $call
        }
        fn plain($($name: $ty),*) -> $result {
            #[allow(dead_code, reason = "few calls ask")]
            const FMA: bool = false;
            $call
        }
        #[cfg(target_arch = "x86_64")]
        if $crate::number::dispatch::has_vectors() {
            // SAFETY: the processor has the features that the function is compiled for.
            #[allow(unsafe_code, reason = "the only way to call code compiled for other features")]
            let result = unsafe { vectors($($name),*) };
            result
        } else {
            plain($($name),*)
        }
        #[cfg(not(target_arch = "x86_64"))]
        plain($($name),*)
    }};
}

pub(super) use fast;
