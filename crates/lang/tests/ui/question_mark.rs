use tilewright_lang::prelude::*;

#[device]
fn parse(text: &str) -> Result<Val<u32>, std::num::ParseIntError> {
    let n: u32 = text.parse()?;
    Ok(val(n))
}

fn main() {}
