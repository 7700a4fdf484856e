//! What is said between the benchmark and a peer: a JSON object a line, each request followed by its answer.

use serde::{Deserialize, Serialize};

use super::Work;

/// The number of this protocol; `peers.py` has the same.
pub(super) const PROTOCOL: u32 = 1;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum Request {
    Hello(Hello),
    Prepare(Case),
    /// Compare the result with one in float64.
    Check {
        check: bool,
    },
    /// Run as many launches as fit into so many milliseconds.
    Measure {
        measure: f64,
    },
}

/// Who are you, and on which GPU do you run?
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Hello {
    pub(super) hello: u32,
    pub(super) peer: &'static str,
    pub(super) device: Option<u32>,
}

/// What time is taken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::cli::bench) enum Clock {
    /// Launches, without what the host does for them.
    Device,
    /// Calls, with all that happens from the call until the last is done.
    Host,
}

/// What is to be measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Case {
    op: &'static str,
    peer: &'static str,
    dtype: &'static str,
    rows: u64,
    columns: u64,
    depth: u64,
    k: u64,
    copies: usize,
    clock: Clock,
    seed: u64,
}

impl Case {
    pub(super) fn new(peer: &'static str, work: Work) -> Case {
        let Work { op, dtype, rows, columns, depth, k, copies, clock, seed } = work;
        Case { op, peer, dtype, rows, columns, depth, k, copies, clock, seed }
    }
}

/// What is answered. Fields that are not known are ignored, so that a peer may say more.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(super) enum Answer {
    Missing { missing: String },
    Failed { failed: String },
    Unsupported { unsupported: String },
    Hello(Facts),
    Checked { relative_error: f64 },
    Measured { us: f64 },
    Prepared { copies: usize },
}

/// What a peer says about itself.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Facts {
    pub(super) protocol: u32,
    #[serde(default)]
    pub(super) torch: Option<String>,
    #[serde(default)]
    pub(super) triton: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_what_the_other_side_reads() {
        let work = Work {
            op: "softmax",
            dtype: "bf16",
            rows: 128,
            columns: 4096,
            depth: 0,
            k: 8,
            copies: 3,
            clock: Clock::Device,
            seed: 1,
        };
        for (request, line) in [
            (
                Request::Hello(Hello { hello: PROTOCOL, peer: "torch", device: None }),
                r#"{"hello":1,"peer":"torch","device":null}"#,
            ),
            (
                Request::Prepare(Case::new("triton", work)),
                r#"{"op":"softmax","peer":"triton","dtype":"bf16","rows":128,"columns":4096,"depth":0,"k":8,"copies":3,"clock":"device","seed":1}"#,
            ),
            (Request::Check { check: true }, r#"{"check":true}"#),
            (Request::Measure { measure: 3.0 }, r#"{"measure":3.0}"#),
        ] {
            assert_eq!(serde_json::to_string(&request).unwrap(), line);
        }
    }

    #[test]
    fn answers_are_what_the_other_side_writes() {
        let answer = |line: &str| serde_json::from_str::<Answer>(line).ok();
        let facts = Facts { protocol: 1, torch: Some("2.11.0".to_owned()), triton: None };
        let hello = r#"{"protocol": 1, "python": "3.12.3", "torch": "2.11.0", "triton": null, "name": "NVIDIA H200"}"#;
        assert_eq!(answer(hello), Some(Answer::Hello(facts)));
        assert_eq!(
            answer(r#"{"us": 12.5, "launches": 240, "graph": true}"#),
            Some(Answer::Measured { us: 12.5 })
        );
        assert_eq!(answer(r#"{"copies": 3}"#), Some(Answer::Prepared { copies: 3 }));
        assert_eq!(answer(r#"{"missing": "torch"}"#), Some(Answer::Missing { missing: "torch".to_owned() }));
        for nonsense in ["", "null", "[]", "{}", r#"{"us": "fast"}"#, "Traceback"] {
            assert_eq!(answer(nonsense), None, "{nonsense}");
        }
    }
}
