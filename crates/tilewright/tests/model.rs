//! The model of matrix products against what an H200 measured (`results/h200/candidates.json`): of the algorithms that were tried for a
//! shape, the one that the model likes best must be about as fast as the fastest.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde::Deserialize;
use tilewright::hardware::Gpu;
use tilewright::kernels::gemm::{Algorithm, Problem, Types};

#[derive(Deserialize)]
struct Results {
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    shape: String,
    dtype: String,
    layout: String,
    tried: Vec<Tried>,
}

#[derive(Deserialize)]
struct Tried {
    algorithm: String,
    us: f64,
}

/// How much longer the model's choice took than the fastest, for each shape.
fn regrets() -> Vec<(String, f64)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/h200/candidates.json");
    let results: Results = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let gpu = Gpu::named("h200").unwrap();
    let regret = |entry: Entry| {
        let extents: Vec<u32> = entry.shape.split('x').map(|extent| extent.parse().unwrap()).collect();
        assert_eq!(entry.layout, "tn");
        let problem =
            Problem::new(extents[0], extents[1], extents[2], Types::of(entry.dtype.parse().unwrap()));
        let predicted = |tried: &Tried| {
            let algorithm: Algorithm = tried.algorithm.parse().unwrap();
            algorithm.predict(&problem, gpu).unwrap().seconds()
        };
        let choice = entry.tried.iter().min_by(|x, y| predicted(x).total_cmp(&predicted(y))).unwrap().us;
        let fastest = entry.tried.iter().map(|tried| tried.us).fold(f64::INFINITY, f64::min);
        (entry.shape, choice / fastest)
    };
    results.entries.into_iter().map(regret).collect()
}

#[test]
fn the_choice_is_about_as_fast_as_the_fastest() {
    let regrets = regrets();
    assert!(regrets.len() >= 50);
    let worst = regrets.iter().max_by(|x, y| x.1.total_cmp(&y.1)).unwrap();
    assert!(worst.1 < 1.12, "{worst:?}");
    let mean = (regrets.iter().map(|(_, regret)| regret.ln()).sum::<f64>() / regrets.len() as f64).exp();
    assert!(mean < 1.02, "{mean}");
}
