//! One HTML file: the data, a style sheet and a program, and nothing from elsewhere.

use super::data::ReportData;
use core::slice;
use std::io::{self, Write};

const STYLE: &str = include_str!("page/style.css");
const BODY: &str = include_str!("page/body.html");
/// Scripts shared by all panels, in dependency order.
const PROGRAM: [&str; 20] = [
    include_str!("page/base/units.js"),
    include_str!("page/base/dom.js"),
    include_str!("page/base/colors.js"),
    include_str!("page/base/legend.js"),
    include_str!("page/data/away.js"),
    include_str!("page/data/decode.js"),
    include_str!("page/data/pickle.js"),
    include_str!("page/data/snapshot.js"),
    include_str!("page/data/peaks.js"),
    include_str!("page/data/labels.js"),
    include_str!("page/data/groups.js"),
    include_str!("page/data/moments.js"),
    include_str!("page/data/search.js"),
    include_str!("page/app.js"),
    include_str!("page/timeline/view.js"),
    include_str!("page/timeline/bands.js"),
    include_str!("page/timeline/layers.js"),
    include_str!("page/timeline/axes.js"),
    include_str!("page/timeline/overview.js"),
    include_str!("page/timeline/input.js"),
];
/// One file each; the page shows them in this order.
const PANELS: [&str; 12] = [
    include_str!("page/panels/runs.js"),
    include_str!("page/panels/figures.js"),
    include_str!("page/panels/gains.js"),
    include_str!("page/panels/search.js"),
    include_str!("page/panels/timeline.js"),
    include_str!("page/panels/live.js"),
    include_str!("page/panels/events.js"),
    include_str!("page/panels/map.js"),
    include_str!("page/panels/flame.js"),
    include_str!("page/panels/comparison.js"),
    include_str!("page/panels/failures.js"),
    include_str!("page/panels/passes.js"),
];
/// Builds the panels.
const MAIN: &str = include_str!("page/main.js");

/// Nothing may be loaded and nothing sent, whatever a name in the data says.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

/// Writes `data` as one page that works from disk, in light and dark.
///
/// # Errors
/// Those of `sink`.
pub fn write_html(data: &ReportData, sink: impl Write) -> io::Result<()> {
    write_runs(slice::from_ref(data), sink)
}

/// Writes several runs as one page, which shows them beside each other and each by itself.
///
/// # Errors
/// Those of `sink`.
pub fn write_runs(runs: &[ReportData], mut sink: impl Write) -> io::Result<()> {
    write_to(runs, &mut sink)
}

/// Writes without generics, so that it is compiled once, and here.
fn write_to(runs: &[ReportData], sink: &mut dyn Write) -> io::Result<()> {
    let json = match runs {
        [data] => serde_json::to_string(data),
        _ => serde_json::to_string(runs),
    };
    let scripts: Vec<&str> = PROGRAM.into_iter().chain(PANELS).chain([MAIN]).collect();
    let titles: Vec<&str> = runs.iter().map(|data| data.title.as_str()).collect();
    write_page(&titles.join(" | "), &json.map_err(io::Error::other)?, &scripts, sink)
}

/// Writes a page of this style that runs `scripts` over `json`.
pub(crate) fn write_page(
    title: &str,
    json: &str,
    scripts: &[&str],
    sink: &mut dyn Write,
) -> io::Result<()> {
    write!(sink, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n")?;
    writeln!(sink, "<meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">")?;
    writeln!(sink, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">")?;
    writeln!(sink, "<title>{}</title>", escape(title))?;
    writeln!(sink, "<style>\n{STYLE}</style>\n</head>\n<body>\n{BODY}")?;
    // Names come from programs; `<` must not end the element early. JSON has `<` inside strings only.
    writeln!(
        sink,
        "<script type=\"application/json\" id=\"data\">{}</script>",
        json.replace('<', "\\u003c")
    )?;
    writeln!(sink, "<script>\n\"use strict\";\n(() => {{")?;
    for part in scripts {
        sink.write_all(part.as_bytes())?;
    }
    writeln!(sink, "}})();\n</script>\n</body>\n</html>")?;
    sink.flush()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
