//! Several runs on one page: written there, or dropped onto it.

use crate::browser::{Browser, Page};
use crate::plot::{folder, open, picture, shown};
use crate::sample::{self, HOSTILE};
use omniheap_trace::report::{self, ReportData};
use omniheap_trace::{Limits, Trace};
use std::fs;

/// Opens a page of several runs.
fn open_runs<'b>(browser: &'b mut Browser, runs: &[ReportData]) -> Page<'b> {
    let file = folder().join("runs.html");
    report::write_runs(runs, fs::File::create(&file).expect("the folder can be written"))
        .expect("the page is written");
    browser.open(&file)
}

/// Drops a file onto the page and waits until it is opened or refused.
fn drop_file(page: &mut Page<'_>, name: &str, bytes: &[u8]) {
    let [name, bytes] = [serde_json::json!(name), serde_json::json!(bytes)];
    page.js(&format!(
        "(() => {{ const carried = new DataTransfer(); carried.items.add(new File([Uint8Array.from({bytes})], {name})); \
         window.dispatchEvent(new DragEvent('drop', {{ dataTransfer: carried, cancelable: true }})); return true; }})()"
    ));
    page.wait(&format!(
        "[document.getElementById('title'), document.getElementById('notice')].some((it) => it.textContent.includes({name}) && it.offsetParent)"
    ));
    page.settle();
}

/// Returns everything that the panels say of the events.
fn said(page: &mut Page<'_>) -> [String; 4] {
    let text = |page: &mut Page<'_>, id: &str| {
        page.text(&format!("document.getElementById('{id}').innerText"))
    };
    let figures = text(page, "figures");
    [figures, text(page, "event-list"), text(page, "live"), picture(page)]
}

pub(crate) fn runs_are_on_one_scale_and_one_is_shown(browser: &mut Browser) {
    let runs = [("three", sample::three()), ("stack", sample::stack()), ("spike", sample::spike())]
        .map(|(name, trace)| report::from_trace(&trace, name));
    let page = &mut open_runs(browser, &runs);
    let rows = page.js(
        "[...document.querySelectorAll('#runs table tr')].slice(1, 3).map((line) => line.innerText)",
    );
    let peaks = "Peak live\t48.0 MiB\t1.00 MiB (−47.0 MiB)\t36.0 MiB (−12.0 MiB)";
    assert_eq!(rows[0], peaks);
    assert_eq!(rows[1], "Peak reserved\t64.0 MiB\t–\t–");
    let names = page.text("document.querySelectorAll('#runs table')[1].innerText");
    assert!(names.contains(HOSTILE), "{names}");
    // The longest run ends at the right; the one of five microseconds is not drawn at a tenth of the way.
    let inked = "((canvas, x) => { const { data } = canvas.getContext('2d').getImageData(x, 0, 1, canvas.height); \
                 return new Set(Array.from({ length: canvas.height }, (_, y) => data.slice(4 * y, 4 * y + 4).join())).size; })\
                 (document.querySelector('#runs .plot'), ";
    assert!(page.number(&format!("{inked}100)")) > 2.0, "lines and the grid");

    assert_eq!(page.text_of("#title"), "three");
    page.press("#run [data-value='2']");
    assert_eq!(page.text_of("#title"), "spike");
    assert!(page.text_of("#figures").contains("36.0 MiB"));
    assert_eq!(
        page.text("document.querySelector('#run [aria-pressed=true]').innerText"),
        "3: spike"
    );
    page.key("w");
    let [from, to, ..] = shown(page);
    assert!((to - from - 700_000.0).abs() < 1.0, "one timeline follows the keys: {from}..{to}");
    page.key(",");
    page.wait("location.hash.startsWith('#run=3&event=')");
    page.js("location.hash = '#event=2'");
    page.wait("document.getElementById('title').textContent === 'three'");
    assert!(page.text_of("#live .readout").contains("event 2"), "a link leads to its run");
}

pub(crate) fn a_dropped_snapshot_is_read_as_the_command_reads_it(browser: &mut Browser) {
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    for name in [
        "snapshot-2.pickle",
        "snapshot-5.pickle",
        "expandable.pickle",
        "holes.pickle",
        "real/shortage.pickle.gz",
        "real/stacks.pickle.gz",
    ] {
        let bytes = fs::read(data.join(name)).expect("it is there");
        let trace = Trace::read(&bytes[..], &Limits::default()).expect("a snapshot");
        let mut wanted = report::from_trace(&trace, name);
        wanted.moments.clear();
        let wanted = said(&mut open(browser, &wanted));
        let mut page = open(browser, &report::from_trace(&sample::three(), "three"));
        drop_file(&mut page, name, &bytes);
        assert_eq!(page.text_of("#title"), name);
        assert_eq!(page.js("document.querySelectorAll('#run button').length"), 2);
        for (dropped, written) in said(&mut page).iter().zip(&wanted) {
            assert!(dropped == written, "{name}: {dropped}\n{written}");
        }
    }
}

pub(crate) fn what_cannot_be_opened_leaves_the_page_as_it_was(browser: &mut Browser) {
    let page = &mut open(browser, &report::from_trace(&sample::three(), "three"));
    let before = said(page);
    let calls = b"\x80\x04cos\nsystem\n\x8c\x02ls\x85R.".to_vec();
    let deep = [&b"\x80\x04"[..], &[b'('; 70]].concat();
    for (name, bytes, why) in [
        ("calls.pickle", calls, "nothing of it was run"),
        ("deep.pickle", deep, "more than 64 containers"),
        ("short.pickle", b"\x80\x04]".to_vec(), "ends in the middle"),
        ("number.pickle", b"\x80\x04K\x07.".to_vec(), "no `segments`"),
        ("mark.pickle", b"\x80\x04(K\x01a.".to_vec(), "damaged"),
        ("run.csv", b"op,id".to_vec(), "`omniheap report` reads other traces"),
        ("other.json", b"{\"schema\":1}".to_vec(), "schema 2"),
    ] {
        drop_file(page, name, &bytes);
        let notice = page.text_of("#notice");
        assert!(
            notice.starts_with(&format!("{name} cannot be opened: ")) && notice.contains(why),
            "{notice}"
        );
        assert!(said(page) == before, "{name}");
    }
}
