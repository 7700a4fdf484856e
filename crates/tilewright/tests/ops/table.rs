//! The page of bounds is the table in the code.

use tilewright::ops::bounds_table;

#[test]
fn the_page_has_the_table_of_the_code() {
    let page = include_str!("../../../../docs/numerics-ops.md");
    assert!(
        page.contains(&bounds_table()),
        "docs/numerics-ops.md should have this table:\n{}",
        bounds_table()
    );
}
