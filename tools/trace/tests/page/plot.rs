//! The timeline of an open page: places on it, and what is drawn there.

use crate::browser::{Browser, Page};
use omniheap_trace::report::{self, ReportData};
use std::fs::File;
use std::path::PathBuf;

/// Writes a report and opens it.
pub(crate) fn open<'b>(browser: &'b mut Browser, data: &ReportData) -> Page<'b> {
    let file = folder().join("report.html");
    report::write_html(data, File::create(&file).expect("the folder can be written"))
        .expect("the page is written");
    browser.open(&file)
}

/// Returns the folder of this run's pages.
pub(crate) fn folder() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("omniheap-page-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the folder for tests can be made");
    folder
}

/// Returns the part of the recording that is shown: from, to, low, high.
pub(crate) fn shown(page: &mut Page<'_>) -> [f64; 4] {
    ["from", "to", "low", "high"]
        .map(|name| page.number(&format!("Number(document.getElementById('plot').dataset.{name})")))
}

/// Returns the point on the screen for a time in microseconds and a number of bytes.
pub(crate) fn point(page: &mut Page<'_>, time: f64, bytes: f64) -> (f64, f64) {
    page.js("document.getElementById('plot').scrollIntoView({ block: 'center' })");
    page.settle();
    let [from, to, low, high] = shown(page);
    let side = |page: &mut Page<'_>, name: &str| {
        page.number(&format!("document.getElementById('plot').getBoundingClientRect().{name}"))
    };
    let (left, top) = (side(page, "left"), side(page, "top"));
    let (width, height) = (side(page, "width"), side(page, "height"));
    (left + (time - from) / (to - from) * width, top + (high - bytes) / (high - low) * height)
}

/// Returns the colour that is drawn for a time and a number of bytes: red, green, blue and how opaque.
pub(crate) fn color(page: &mut Page<'_>, time: f64, bytes: f64) -> [u64; 4] {
    let [from, to, low, high] = shown(page);
    let (x, y) = ((time - from) / (to - from), (high - bytes) / (high - low));
    let found = page.js(&format!(
        "(() => {{ const plot = document.getElementById('plot'); \
         const at = [Math.floor({x} * plot.width), Math.floor({y} * plot.height)]; \
         return [...plot.getContext('2d').getImageData(...at, 1, 1).data]; }})()"
    ));
    core::array::from_fn(|channel| found[channel].as_u64().expect("a channel"))
}

/// Returns the whole picture, as text that is equal for equal pictures.
pub(crate) fn picture(page: &mut Page<'_>) -> String {
    page.text("document.getElementById('plot').toDataURL()")
}
