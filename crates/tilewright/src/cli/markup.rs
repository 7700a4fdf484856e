//! Text inside of SVG and HTML.

/// Text as it stands between tags and in attributes. Names of GPUs and kernels contain nothing special, but files that are read may.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
