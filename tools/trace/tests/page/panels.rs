//! The panels below the timeline, and how they follow each other.

use crate::browser::{Browser, Page};
use crate::plot::{open, point, shown};
use crate::sample::{self, HOSTILE, MIB};
use omniheap_trace::report;
use std::path::Path;

fn three(browser: &mut Browser) -> Page<'_> {
    open(browser, &report::from_trace(&sample::three(), "three"))
}

/// Returns the cells of a column of the table of live allocations.
fn live(page: &mut Page<'_>, column: usize) -> Vec<String> {
    let cells = page.js(&format!(
        "[...document.querySelectorAll('#live tbody tr')].map((line) => line.cells[{column}].textContent)"
    ));
    serde_json::from_value(cells).expect("a list of texts")
}

pub(crate) fn a_click_shows_what_was_live(browser: &mut Browser) {
    let page = &mut three(browser);
    // Anywhere on the curve, also above everything that is live.
    for (time, head, sizes) in [
        (500_000.0, "48.0 MiB in 3 allocations", &["24.0 MiB", "16.0 MiB", "8.00 MiB"][..]),
        (300_000.0, "24.0 MiB in 2 allocations", &["16.0 MiB", "8.00 MiB"]),
        (100_000.0, "16.0 MiB in 1 allocation", &["16.0 MiB"]),
    ] {
        let at = point(page, time, 60.0 * MIB as f64);
        page.click(at);
        let said = page.text_of("#live .readout");
        assert!(said.contains(head), "{said}");
        assert_eq!(live(page, 1), sizes);
    }
    page.key("p");
    assert!(page.text_of("#live .readout").contains("48.0 MiB"), "p goes to the peak");
    assert_eq!(live(page, 2), ["50.0 %", "33.3 %", "16.7 %"]);
}

pub(crate) fn the_table_sorts_and_sums(browser: &mut Browser) {
    let page = &mut three(browser);
    assert_eq!(live(page, 0), [HOSTILE, "weights", "activations"]);
    page.press("#live th:nth-child(2) button");
    assert_eq!(live(page, 1), ["8.00 MiB", "16.0 MiB", "24.0 MiB"], "ascending by size");
    page.press("#live th:nth-child(1) button");
    assert_eq!(live(page, 0), [HOSTILE, "activations", "weights"], "by name");
    page.press("#live-mode [data-value=names]");
    assert_eq!(live(page, 0), [HOSTILE, "model / weights", "model / activations"]);
    page.choose("#color-by", "stream");
    page.press("#live-mode [data-value=groups]");
    assert_eq!(page.text_of("#live-mode [data-value=groups]"), "By stream");
    assert_eq!(live(page, 0), ["stream 2", "stream 0", "stream 1"]);
    assert_eq!(live(page, 3), ["1", "1", "1"]);
}

pub(crate) fn a_row_leads_to_its_band(browser: &mut Browser) {
    let page = &mut three(browser);
    page.press("#live tbody tr:nth-child(3) button");
    let [from, to, low, high] = shown(page);
    assert!(from > 0.0 && from < 200_000.0 && to > 800_000.0 && to < 1_000_000.0, "{from}..{to}");
    assert!(low <= 16.0 * MIB as f64 && high >= 24.0 * MIB as f64, "{low}..{high}");
    assert!(page.text_of("#readout").contains("Chosen: model / activations"));
    assert_eq!(page.text_of("#live tr.chosen td"), "activations");
}

pub(crate) fn the_event_list_follows_and_leads(browser: &mut Browser) {
    let page = &mut three(browser);
    assert!(page.text_of("#events .chosen").contains("400.000 ms"), "the peak");
    let at = point(page, 700_000.0, 4.0 * MIB as f64);
    page.click(at);
    let chosen = page.text_of("#events .chosen");
    assert!(chosen.contains("600.000 ms") && chosen.contains("free"), "{chosen}");
    page.press("#events [data-event='2']");
    assert!(page.text_of("#live .readout").contains("200.000 ms (event 2)"));
    assert!(page.text_of("#readout").contains("Chosen: model / activations"));
    page.key(".");
    assert!(page.text_of("#events .chosen").contains("400.000 ms"), "one event on");
}

pub(crate) fn long_lists_stay_short(browser: &mut Browser) {
    let pairs = 200_000;
    let page = &mut open(browser, &report::from_trace(&sample::long(pairs), "long"));
    let rows = "document.querySelectorAll('#events [data-event]').length";
    assert!(page.number(rows) < 60.0, "only what can be seen is made");
    page.js("document.getElementById('event-list').focus()");
    page.key("End");
    let last = format!("[data-event='{}']", 2 * pairs - 41);
    assert!(page.text_of(&format!("#events {last}")).contains("free"), "the last event");
    assert!(page.number(rows) < 60.0);
    let middle = page.middle_of("#event-list");
    page.wheel(middle, -240.0);
    let first = page.number("Number(document.querySelector('#events [data-event]').dataset.event)");
    page.wheel(middle, 24.0);
    let next = page.number("Number(document.querySelector('#events [data-event]').dataset.event)");
    assert_eq!(next - first, 1.0, "a row of the wheel is a row of the list");
}

pub(crate) fn maps_count_memory_and_not_addresses(browser: &mut Browser) {
    let mut page = open(browser, &report::from_trace(&sample::paged(), "paged"));
    assert!(page.text_of("#figures").contains("Peak reserved6.00 MiB"));
    let said = page.text_of("#map-readout");
    assert!(
        said.contains("6.00 MiB reserved in 1 block, 3.00 MiB live in 2 allocations"),
        "{said}"
    );
    drop(page);
    let mut page = three(browser);
    let said = page.text_of("#map-readout");
    assert!(said.contains("64.0 MiB reserved in 1 block, 48.0 MiB live"), "{said}");
    assert!(said.contains("largest hole 8.00 MiB"), "{said}");
}

pub(crate) fn the_map_names_what_is_under_the_pointer(browser: &mut Browser) {
    let page = &mut three(browser);
    let (middle, y) = page.middle_of("#map-canvas");
    let width = page.number("document.getElementById('map-canvas').getBoundingClientRect().width");
    let left = middle - width / 2.0;
    let place = |share: f64| (left + 150.0 + share * (width - 154.0), y + 13.0);
    page.hover(place(40.0 / 64.0));
    assert!(page.text_of("#tip").contains(HOSTILE), "{}", page.text_of("#tip"));
    page.hover(place(60.0 / 64.0));
    assert!(page.text_of("#tip").contains("Free: 8.00 MiB"), "{}", page.text_of("#tip"));
    page.click(place(20.0 / 64.0));
    assert!(page.text_of("#readout").contains("Chosen: model / activations"));
}

pub(crate) fn failures_lead_to_their_map(browser: &mut Browser) {
    let page = &mut three(browser);
    let said = page.text_of("#failures");
    assert!(said.contains("30.0 MiB asked for on stream 2 at 500.000 ms"), "{said}");
    assert!(said.contains("Largest hole: 8.00 MiB"), "{said}");
    page.press("#failures button");
    assert_eq!(page.text("document.getElementById('map-moment').value"), "0");
    assert!(page.text_of("#map-readout").contains("At 500.000 ms"));
}

pub(crate) fn a_report_of_one_moment_has_a_map(browser: &mut Browser) {
    use omniheap_core::{Manager, Request};
    let manager = Manager::new(omniheap_host::Host::new());
    let weights =
        manager.allocate(&Request::new(3 << 20).name("weights")).expect("there is memory");
    let data = report::from_manager(&manager.report(), manager.caps(), "one moment");
    let page = &mut open(browser, &data);
    assert!(page.js("document.getElementById('timeline')").is_null(), "nothing over time");
    assert!(page.text_of("#map-readout").contains("3.00 MiB live in 1 allocation"));
    page.type_into("#search-field", "weights");
    assert_eq!(page.text_of("#search-count"), "1 of 1 allocation");
    page.type_into("#search-field", "biases");
    assert_eq!(page.text_of("#search-count"), "0 of 1 allocation");
    drop(weights);
}

pub(crate) fn a_link_opens_at_its_moment(browser: &mut Browser) {
    let mut page = three(browser);
    let say = |page: &mut Page<'_>, link: &str| {
        page.js(&format!("location.hash = '{link}'"));
        page.settle();
        page.text_of("#live .readout")
    };
    assert!(say(&mut page, "#event=2").contains("200.000 ms (event 2)"));
    for wrong in ["#event=8", "#event=-1", "#event=two", "#event=", "#live"] {
        assert!(say(&mut page, wrong).contains("(event 2)"), "{wrong} is no moment");
    }
    page.press("#events [data-event='6']");
    page.wait("location.hash === '#event=6'");
    let link = page.text("location.href");
    drop(page);
    // A window of its own: a page that is loaded anew answers nothing while it goes.
    let mut page = browser.open(Path::new(link.strip_prefix("file://").expect("a file")));
    assert!(page.text_of("#live .readout").contains("(event 6)"), "it is there when it opens");
}

pub(crate) fn a_stack_has_a_line_for_each_frame(browser: &mut Browser) {
    let mut page = open(browser, &report::from_trace(&sample::stack(), "stack"));
    page.press("#live tbody button");
    let frames =
        page.js("[...document.querySelectorAll('#readout li')].map((it) => it.textContent)");
    assert_eq!(
        frames,
        serde_json::json!([
            "main (train.py:8)",
            "step of the training loop with its gradients (train.py:3)",
            HOSTILE
        ])
    );
    let said = page.text_of("#readout span:nth-of-type(2)");
    assert!(said.starts_with(&format!("Chosen: {HOSTILE}, #0; 1.00 MiB")), "{said}");
    drop(page);
    let mut page = three(browser);
    page.press("#live tbody tr:nth-child(3) button");
    assert!(page.js("document.querySelector('#readout li')").is_null(), "a tag is no stack");
}

pub(crate) fn the_answer_of_fit_comes_first(browser: &mut Browser) {
    let mut data = report::from_trace(&sample::three(), "three");
    let fit = |capacity_bytes: u64| report::Fit {
        fits: capacity_bytes >= 64 * MIB,
        capacity_bytes,
        left_bytes: capacity_bytes.cast_signed() - (64 * MIB).cast_signed(),
        peak_reserved_bytes: 64 * MIB,
        allocator: "omniheap".into(),
    };
    data.fit = Some(fit(56 * MIB));
    let change = |change: &str, gained_bytes, not_known: Option<&str>| report::Gain {
        change: change.into(),
        gained_bytes,
        fits: gained_bytes.map(|_| false),
        not_known: not_known.map(Into::into),
    };
    data.gains = vec![
        change("fewer bits", None, Some("no labels")),
        change("half the batch", Some(9), None),
    ];
    let mut page = open(browser, &data);
    let first = page.text_of("#figures .warn");
    assert_eq!(first, "Fitsno");
    let figures = page.text_of("#figures");
    assert!(
        figures.starts_with("FitsnoCapacity56.0 MiBLeft−8.00 MiBPeak reserved by omniheap64.0 MiB")
    );
    assert_eq!(page.text_of("main > :nth-child(2) h2"), "Change → bytes");
    assert_eq!(page.text_of("#gains td"), "half the batch", "what is known comes first");
    assert_eq!(page.text_of("#gains li"), "fewer bits: no labels");
    assert!(page.text_of("#timeline .legend").contains("capacity"));
    assert!(page.text_of("#readout").contains("capacity 56.0 MiB"));
    drop(page);
    data.fit = Some(fit(1 << 40));
    let mut page = open(browser, &data);
    assert!(page.text_of("#figures").starts_with("Fitsyes"));
    assert!(!page.text_of("#timeline .legend").contains("capacity"), "it would flatten all else");
}
