use tilewright_lang::prelude::*;

#[kernel]
fn strings(names: Global<String>, flag: Val<usize>) {
    names.load();
}

fn main() {}
