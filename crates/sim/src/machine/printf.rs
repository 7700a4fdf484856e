//! What kernels print: `vprintf`, and the values of traces.
//!
//! `vprintf(format, arguments)` finds its arguments in a buffer, each at a multiple of its size: 32-bit integers, 64-bit integers and
//! pointers, and doubles, as the promotions of C leave them.

use half::{bf16, f16};

use crate::check::FindingKind;
use crate::memory::window;
use crate::program::Space;

use super::access::number;
use super::cluster::{Cluster, Env};
use super::exec::{At, bits};
use super::report::Where;
use super::warp::Warp;

/// Longest format or string that is followed in memory.
const LONGEST: usize = 1 << 14;

impl Cluster {
    /// A call of `vprintf`, lane by lane.
    pub(crate) fn print(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        format: u32,
        arguments: u32,
        result: Option<u32>,
    ) {
        for lane in bits(at.lanes) {
            let mut word = [0; 8];
            self.read_local(warp, lane, at.frame + format, &mut word);
            let format = self.text_at(env, warp, lane, u64::from_le_bytes(word));
            self.read_local(warp, lane, at.frame + arguments, &mut word);
            let mut next = u64::from_le_bytes(word);
            let mut count = 0;
            let text = expand(&format, |bytes, string| {
                next = next.next_multiple_of(bytes as u64);
                let value = self.bytes_at(env, warp, lane, next, bytes);
                next += bytes as u64;
                count += 1;
                if string {
                    Argument::Text(self.text_at(env, warp, lane, value))
                } else {
                    Argument::Bits(value)
                }
            });
            self.output.push_str(&text);
            if let Some(result) = result {
                let count: u32 = count;
                self.write_local(warp, lane, at.frame + result, &count.to_le_bytes());
            }
        }
    }

    /// A call of `__assertfail(message, file, line, function, size)`.
    pub(crate) fn assert_failed(&mut self, env: &Env<'_>, warp: &mut Warp, at: At, offsets: &[u32; 4]) {
        let lane = at.lanes.trailing_zeros().min(31);
        let mut word = [0; 8];
        let mut texts = Vec::new();
        for offset in [offsets[0], offsets[1], offsets[3]] {
            self.read_local(warp, lane, at.frame + offset, &mut word);
            texts.push(self.text_at(env, warp, lane, u64::from_le_bytes(word)));
        }
        let mut line = [0; 4];
        self.read_local(warp, lane, at.frame + offsets[2], &mut line);
        let message = format!(
            "{}:{}: {}: assertion `{}` failed",
            texts[1],
            u32::from_le_bytes(line),
            texts[2],
            texts[0]
        );
        self.report(env, FindingKind::AssertFailed, Where::thread(at, warp, lane), None, message, None);
    }

    fn bytes_at(&self, env: &Env<'_>, warp: &Warp, lane: u32, address: u64, bytes: usize) -> u64 {
        if let (Space::Local, offset) = window::resolve(address) {
            let mut buffer = [0; 8];
            self.read_local(warp, lane, u32::try_from(offset).unwrap_or(u32::MAX - 64), &mut buffer[..bytes]);
            return number(&buffer[..bytes]);
        }
        // What is printed is fetched behind the kernel's back: not checked, not counted.
        let mut buffer = [0; 8];
        self.read_global(env, address, &mut buffer[..bytes]);
        number(&buffer[..bytes])
    }

    fn text_at(&self, env: &Env<'_>, warp: &Warp, lane: u32, address: u64) -> String {
        let mut bytes = Vec::new();
        while bytes.len() < LONGEST {
            let at_byte = address.wrapping_add(bytes.len() as u64);
            let inside = match window::resolve(at_byte) {
                (Space::Global, address) => env.memory.find(address, 1, 0).is_some(),
                (Space::Local, _) => true,
                _ => false,
            };
            let byte = if inside { self.bytes_at(env, warp, lane, at_byte, 1) } else { 0 };
            match u8::try_from(byte) {
                Ok(0) | Err(_) => break,
                Ok(byte) => bytes.push(byte),
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

enum Argument {
    Bits(u64),
    Text(String),
}

/// Fills in a format of C; `next` gives the next argument by its size, or the string it points to.
fn expand(format: &str, mut next: impl FnMut(usize, bool) -> Argument) -> String {
    let mut out = String::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let end = rest.find(|c: char| c.is_ascii_alphabetic() && !"hlLjzt".contains(c) || c == '%');
        let Some(end) = end else {
            out.push('%');
            break;
        };
        let spec = &rest[..end];
        let kind = rest.as_bytes()[end];
        rest = &rest[end + 1..];
        let long = spec.contains("ll")
            || spec.contains('l')
            || spec.contains('j')
            || spec.contains('z')
            || spec.contains('t');
        let mut flags: String = spec.chars().filter(|c| !"hlLjzt".contains(*c)).collect();
        while let Some(star) = flags.find('*') {
            let Argument::Bits(value) = next(4, false) else { break };
            flags.replace_range(star..=star, &signed32(value).to_string());
        }
        match kind {
            b'%' => out.push('%'),
            b's' => {
                if let Argument::Text(text) = next(8, true) {
                    let shown = match precision(&flags) {
                        Some(most) => text.chars().take(most).collect(),
                        None => text,
                    };
                    pad(&mut out, &flags, "", &shown, false);
                }
            }
            b'c' => {
                if let Argument::Bits(value) = next(4, false) {
                    let text = char::from(u8::try_from(value & 0xFF).unwrap_or(b'?')).to_string();
                    pad(&mut out, &flags, "", &text, false);
                }
            }
            b'd' | b'i' | b'u' | b'x' | b'X' | b'o' => {
                if let Argument::Bits(value) = next(if long { 8 } else { 4 }, false) {
                    integer(&mut out, &flags, kind, value, long);
                }
            }
            b'p' => {
                if let Argument::Bits(value) = next(8, false) {
                    pad(&mut out, &flags, "", &format!("{value:#x}"), false);
                }
            }
            b'f' | b'F' | b'e' | b'E' | b'g' | b'G' | b'a' | b'A' => {
                if let Argument::Bits(value) = next(8, false) {
                    float(&mut out, &flags, kind, f64::from_bits(value));
                }
            }
            _ => {
                out.push('%');
                out.push_str(spec);
                out.push(char::from(kind));
            }
        }
    }
    out.push_str(rest);
    out
}

fn signed32(value: u64) -> i32 {
    u32::try_from(value & u64::from(u32::MAX)).unwrap_or(0).cast_signed()
}

fn precision(flags: &str) -> Option<usize> {
    flags.split_once('.').map(|(_, digits)| digits.parse().unwrap_or(0))
}

fn width(flags: &str) -> usize {
    let before = flags.split('.').next().unwrap_or("");
    before.trim_start_matches(['-', '+', ' ', '#', '0']).parse().unwrap_or(0)
}

fn pad(out: &mut String, flags: &str, sign: &str, text: &str, numeric: bool) {
    let width = width(flags).min(4096);
    let lead = flags.split('.').next().unwrap_or("");
    let left = lead.contains('-');
    let zeros = numeric && !left && lead.trim_start_matches(['+', ' ', '#']).starts_with('0');
    let fill = width.saturating_sub(sign.len() + text.chars().count());
    if !left && !zeros {
        out.extend(std::iter::repeat_n(' ', fill));
    }
    out.push_str(sign);
    if zeros {
        out.extend(std::iter::repeat_n('0', fill));
    }
    out.push_str(text);
    if left {
        out.extend(std::iter::repeat_n(' ', fill));
    }
}

fn sign_of(flags: &str, negative: bool) -> &'static str {
    match (negative, flags.contains('+'), flags.contains(' ')) {
        (true, ..) => "-",
        (false, true, _) => "+",
        (false, false, true) => " ",
        _ => "",
    }
}

fn integer(out: &mut String, flags: &str, kind: u8, value: u64, long: bool) {
    let (sign, digits) = match kind {
        b'd' | b'i' => {
            let value = if long { value.cast_signed() } else { i64::from(signed32(value)) };
            (sign_of(flags, value < 0), value.unsigned_abs().to_string())
        }
        b'x' => (if flags.contains('#') { "0x" } else { "" }, format!("{value:x}")),
        b'X' => (if flags.contains('#') { "0X" } else { "" }, format!("{value:X}")),
        b'o' => (if flags.contains('#') { "0" } else { "" }, format!("{value:o}")),
        _ => ("", value.to_string()),
    };
    let digits = match precision(flags) {
        Some(least) if digits.len() < least.min(4096) => {
            format!("{}{digits}", "0".repeat(least.min(4096) - digits.len()))
        }
        _ => digits,
    };
    pad(out, flags, sign, &digits, true);
}

fn float(out: &mut String, flags: &str, kind: u8, value: f64) {
    let digits = precision(flags).unwrap_or(6).min(512);
    let magnitude = value.abs();
    let sign = sign_of(flags, value.is_sign_negative());
    let upper = kind.is_ascii_uppercase();
    let text = if value.is_nan() {
        "nan".to_owned()
    } else if value.is_infinite() {
        "inf".to_owned()
    } else {
        match kind.to_ascii_lowercase() {
            b'e' => exponent(magnitude, digits),
            b'g' => general(magnitude, digits.max(1), flags.contains('#')),
            b'a' => format!("{magnitude:?}"),
            _ => format!("{magnitude:.digits$}"),
        }
    };
    let text = if upper { text.to_uppercase() } else { text };
    pad(out, flags, sign, &text, value.is_finite());
}

/// `1.5e+03`, as C writes it.
fn exponent(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$e}");
    match text.split_once('e') {
        Some((mantissa, power)) => {
            let power: i32 = power.parse().unwrap_or(0);
            format!("{mantissa}e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs())
        }
        None => text,
    }
}

fn general(value: f64, digits: usize, keep: bool) -> String {
    let scientific = exponent(value, digits - 1);
    let power: i32 = scientific.split_once('e').and_then(|(_, power)| power.parse().ok()).unwrap_or(0);
    let most = i32::try_from(digits).unwrap_or(i32::MAX);
    let trim = |text: &str| -> String {
        if keep || !text.contains('.') {
            text.to_owned()
        } else {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    };
    if power < -4 || power >= most {
        match scientific.split_once('e') {
            Some((mantissa, power)) => format!("{}e{power}", trim(mantissa)),
            None => scientific,
        }
    } else {
        let after = usize::try_from(most - 1 - power).unwrap_or(0);
        trim(&format!("{value:.after$}"))
    }
}

/// A value of a trace, by the name of its type: `u32`, `f16`, `4xf16`.
pub(crate) fn typed(ty: &str, registers: &[u64]) -> String {
    let (count, element) = match ty.split_once('x') {
        Some((count, element)) if count.parse::<usize>().is_ok() => (count.parse().unwrap_or(1), element),
        _ => (1usize, ty),
    };
    let width = match element {
        "bool" | "i1" | "pred" => 1,
        "i8" | "u8" | "s8" | "e4m3" | "e5m2" => 8,
        "i16" | "u16" | "s16" | "f16" | "bf16" => 16,
        "i64" | "u64" | "s64" | "f64" => 64,
        _ => 32,
    };
    let part = |i: usize| -> u64 {
        let per = (32 / width).max(1);
        let (register, shift) = if width == 64 || count == 1 { (i, 0) } else { (i / per, i % per * width) };
        let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
        registers.get(register).map_or(0, |value| value >> shift & mask)
    };
    let show = |bits: u64| -> String {
        let low16 = u16::try_from(bits & 0xFFFF).unwrap_or(0);
        match element {
            "f32" | "tf32" => f32::from_bits(u32::try_from(bits).unwrap_or(0)).to_string(),
            "f64" => f64::from_bits(bits).to_string(),
            "f16" => f16::from_bits(low16).to_string(),
            "bf16" => bf16::from_bits(low16).to_string(),
            "i32" | "s32" => signed32(bits).to_string(),
            "i64" | "s64" => bits.cast_signed().to_string(),
            "i16" | "s16" => low16.cast_signed().to_string(),
            "i8" | "s8" => u8::try_from(bits & 0xFF).unwrap_or(0).cast_signed().to_string(),
            "bool" | "i1" | "pred" => (bits & 1 == 1).to_string(),
            _ => bits.to_string(),
        }
    };
    if count == 1 {
        show(part(0))
    } else {
        format!("[{}]", (0..count).map(|i| show(part(i))).collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(format: &str, arguments: &[u64]) -> String {
        let mut arguments = arguments.iter();
        expand(format, |_, string| {
            let value = arguments.next().copied().unwrap_or(0);
            if string { Argument::Text(format!("<{value}>")) } else { Argument::Bits(value) }
        })
    }

    #[test]
    fn formats_are_those_of_c() {
        let minus = u64::from((-7i32).cast_unsigned());
        assert_eq!(print("%d %5d|%-5d|%05d %+d", &[minus, 42, 42, 42, 42]), "-7    42|42   |00042 +42");
        assert_eq!(print("%u %x %#X %lld %%", &[minus, 255, 255, u64::MAX]), "4294967289 ff 0XFF -1 %");
        let float = |value: f64| value.to_bits();
        assert_eq!(
            print(
                "%f %.2f %8.3f|%e %g %g",
                &[float(1.5), float(2.345), float(-3.0), float(1500.0), float(1e10), float(0.5)]
            ),
            "1.500000 2.35   -3.000|1.500000e+03 1e+10 0.5"
        );
        assert_eq!(print("%s and %c %p", &[3, 65, 4096]), "<3> and A 0x1000");
        assert_eq!(print("100%", &[]), "100%");
        assert_eq!(print("%*d", &[6, 12]), "    12");
        assert_eq!(print("%f %f", &[float(f64::NAN), float(f64::NEG_INFINITY)]), "nan -inf");
    }

    #[test]
    fn traces_show_values_by_their_type() {
        assert_eq!(typed("f32", &[0x3FC0_0000]), "1.5");
        assert_eq!(typed("i32", &[u64::from(u32::MAX)]), "-1");
        assert_eq!(typed("2xf16", &[0x3C00_4000]), "[2, 1]");
        assert_eq!(typed("4xf16", &[0x3C00_4000, 0x0000_C000]), "[2, 1, -2, 0]");
    }
}
