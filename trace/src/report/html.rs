//! One HTML file: the data, a style sheet and a program, and nothing from elsewhere.

use super::data::ReportData;
use std::io::{self, Write};

const STYLE: &str = include_str!("page/style.css");
const BODY: &str = include_str!("page/body.html");
/// In order: each file uses only what the ones before define.
const PROGRAM: [&str; 8] = [
    include_str!("page/util.js"),
    include_str!("page/decode.js"),
    include_str!("page/series.js"),
    include_str!("page/timeline.js"),
    include_str!("page/map.js"),
    include_str!("page/flame.js"),
    include_str!("page/tables.js"),
    include_str!("page/main.js"),
];

/// Nothing may be loaded and nothing sent, whatever a name in the data says.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

/// Writes `data` as one page that works from disk, in light and dark.
///
/// # Errors
/// What `sink` returns.
pub fn write_html(data: &ReportData, mut sink: impl Write) -> io::Result<()> {
    let json = serde_json::to_string(data).map_err(io::Error::other)?;
    write!(sink, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n")?;
    writeln!(sink, "<meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">")?;
    writeln!(sink, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">")?;
    writeln!(sink, "<title>{}</title>", escape(&data.title))?;
    writeln!(sink, "<style>\n{STYLE}</style>\n</head>\n<body>\n{BODY}")?;
    // Names come from programs; `<` must not end the element early. JSON has `<` inside strings only.
    writeln!(
        sink,
        "<script type=\"application/json\" id=\"data\">{}</script>",
        json.replace('<', "\\u003c")
    )?;
    writeln!(sink, "<script>\n\"use strict\";\n(() => {{")?;
    for part in PROGRAM {
        sink.write_all(part.as_bytes())?;
    }
    writeln!(sink, "}})();\n</script>\n</body>\n</html>")?;
    sink.flush()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
