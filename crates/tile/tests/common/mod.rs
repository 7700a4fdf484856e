//! What several tests share.

use tilewright_tile::Fact;

/// What is true of tensors that lie as they should: aligned, without gaps between columns, rows a multiple of 16 bytes of halves apart.
pub(crate) fn facts(views: &[&str]) -> Vec<(String, Fact)> {
    let of_view = |view: &&str| {
        [
            ((*view).to_owned(), Fact::MultipleOf(16)),
            (format!("{view}_stride1"), Fact::Is(1)),
            (format!("{view}_stride0"), Fact::MultipleOf(8)),
        ]
    };
    views.iter().flat_map(of_view).collect()
}
