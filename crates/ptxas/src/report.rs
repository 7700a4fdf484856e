//! What `ptxas -v` prints, as data.

/// The result of an assembly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// One entry a kernel, in the order of the file.
    pub entries: Vec<Entry>,
    /// Remarks with a number, such as `C7517` when the assembler serialises wgmma. They come with exit code 0, so
    /// nobody sees them who does not look.
    pub remarks: Vec<String>,
    /// The binary.
    pub cubin: Vec<u8>,
}

/// Resources of one kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The kernel's name.
    pub name: String,
    /// Registers a thread.
    pub registers: u32,
    /// Bytes written to local memory because registers ran out.
    pub spill_store_bytes: u32,
    /// Bytes read back.
    pub spill_load_bytes: u32,
    /// Bytes of the local stack frame.
    pub stack_bytes: u32,
    /// Bytes of static shared memory.
    pub shared_bytes: u32,
}

impl Report {
    pub(crate) fn parse(text: &str, cubin: Vec<u8>) -> Report {
        let mut report = Report { cubin, ..Report::default() };
        for line in text.lines() {
            if let Some(name) =
                line.split_once("Compiling entry function '").and_then(|(_, rest)| rest.split('\'').next())
            {
                report.entries.push(Entry { name: name.to_string(), ..Entry::default() });
            }
            if line.split(['(', ')']).any(is_remark) {
                report.remarks.push(line.trim().to_string());
            }
            let Some(entry) = report.entries.last_mut() else { continue };
            // Facts are written `<number> <unit>`, separated by commas.
            for fact in line.rsplit(": ").next().unwrap_or(line).split(',') {
                let mut words = fact.split_whitespace().skip_while(|word| word.eq_ignore_ascii_case("used"));
                let Some(Ok(number)) = words.next().map(str::parse::<u32>) else { continue };
                match words.collect::<Vec<_>>().join(" ").as_str() {
                    "registers" => entry.registers = number,
                    "bytes spill stores" => entry.spill_store_bytes = number,
                    "bytes spill loads" => entry.spill_load_bytes = number,
                    "bytes stack frame" => entry.stack_bytes = number,
                    "bytes smem" => entry.shared_bytes = number,
                    _ => {}
                }
            }
        }
        report
    }
}

/// `C` and four digits.
fn is_remark(word: &str) -> bool {
    word.len() == 5 && word.starts_with('C') && word[1..].bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_and_remarks_are_read() {
        let text = "ptxas info    : 0 bytes gmem\n\
            ptxas info    : (C7517) Potential Performance Loss: wgmma.mma_async instructions are serialized\n\
            ptxas info    : Compiling entry function 'first' for 'sm_90a'\n\
            ptxas info    : Function properties for first\n    \
            16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n\
            ptxas info    : Used 168 registers, used 1 barriers, 16 bytes cumulative stack size, 49152 bytes smem\n\
            ptxas info    : Compiling entry function 'second' for 'sm_90a'\n\
            ptxas info    : Used 8 registers, used 0 barriers\n";
        let report = Report::parse(text, Vec::new());
        assert_eq!(report.remarks.len(), 1);
        let [first, second] = &report.entries[..] else { panic!("{:?}", report.entries) };
        assert_eq!((first.registers, first.shared_bytes, first.stack_bytes), (168, 49152, 16));
        assert_eq!((first.spill_store_bytes, first.spill_load_bytes), (8, 12));
        assert_eq!((second.name.as_str(), second.registers, second.spill_store_bytes), ("second", 8, 0));
    }
}
