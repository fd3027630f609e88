//! Drawing, zooming and panning of the timeline.

use crate::browser::{Browser, Page};
use crate::plot::{color, open, picture, point, shown};
use crate::sample::{self, HOSTILE, MIB};
use omniheap_trace::report;

/// Returns a number of mebibytes.
const fn mib(count: u64) -> f64 {
    (count * MIB) as f64
}

fn three(browser: &mut Browser) -> Page<'_> {
    open(browser, &report::from_trace(&sample::three(), "three"))
}

/// Returns whether nothing but the grid can be there.
fn is_empty(page: &mut Page<'_>, time: f64, bytes: f64) -> bool {
    color(page, time, bytes)[3] == 0
}

pub(crate) fn bands_are_where_allocations_are(browser: &mut Browser) {
    let page = &mut three(browser);
    for mode in ["allocations", "groups"] {
        page.press(&format!("#mode [data-value={mode}]"));
        // Allocations are stacked by age, groups by weight: in both, these three are different ones.
        let at = [8, 20, 44].map(|bytes| color(page, 500_000.0, mib(bytes)));
        assert!(at.iter().all(|color| color[3] == 255), "{mode}: {at:?}");
        assert!(at[0] != at[1] && at[1] != at[2] && at[2] != at[0], "{mode}: {at:?}");
        assert_eq!(color(page, 100_000.0, mib(8)), at[0], "weights live from the start");
        assert!(at[1..].contains(&color(page, 300_000.0, mib(20))), "activations from 0.2 s");
        assert!(is_empty(page, 500_000.0, 48.25 * mib(1)), "{mode}: nothing above 48 MiB");
        assert!(is_empty(page, 100_000.0, mib(20)), "{mode}: activations not before 0.2 s");
        assert!(is_empty(page, 700_000.0, mib(30)), "{mode}: the third not after 0.6 s");
        assert!(color(page, 100_000.0, mib(64))[3] > 0, "{mode}: a line at what is reserved");
    }
}

pub(crate) fn no_peak_is_too_short_to_be_seen(browser: &mut Browser) {
    let page = &mut open(browser, &report::from_trace(&sample::spike(), "spike"));
    assert!(!is_empty(page, 300_000.0, mib(20)), "two microseconds of a second are drawn");
    let at = point(page, 300_000.0, mib(20));
    page.click(at);
    assert!(page.text_of("#live .readout").contains("36.0 MiB in 2 allocations"));
}

pub(crate) fn the_axis_ends_at_the_last_event(browser: &mut Browser) {
    let page = &mut three(browser);
    assert_eq!(shown(page)[..2], [0.0, 1_000_000.0]);
    page.choose("#axis", "events");
    let [from, to, ..] = shown(page);
    assert_eq!((from, to), (0.0, 8.0), "eight events");
    // Across events, each is as wide as the others: the second half of the third is activations only.
    assert!(color(page, 2.5, mib(20))[3] > 0);
    assert!(is_empty(page, 2.5, mib(36)));
}

pub(crate) fn hovering_names_the_allocation(browser: &mut Browser) {
    let page = &mut three(browser);
    let at = point(page, 500_000.0, mib(36));
    page.hover(at);
    let tip = page.text_of("#tip");
    for part in [
        HOSTILE,
        "24.0 MiB",
        "stream 2",
        "live from 400.000 ms to 600.000 ms (200.00 ms)",
        "block 0, offset 0x2000000",
    ] {
        assert!(tip.contains(part), "{part} is not in {tip}");
    }
    let at = point(page, 500_000.0, mib(20));
    page.hover(at);
    assert!(page.text_of("#tip").contains("model / activations"));
    let at = point(page, 500_000.0, mib(56));
    page.hover(at);
    let tip = page.text_of("#tip");
    assert!(tip.contains("live 48.0 MiB, reserved 64.0 MiB") && !tip.contains("stream"), "{tip}");
}

pub(crate) fn what_sleeps_is_drawn_where_it_is(browser: &mut Browser) {
    let page = &mut open(browser, &report::from_trace(&sample::asleep(), "asleep"));
    for (time, said) in [
        (
            100_000.0,
            "live 24.0 MiB, reserved 24.0 MiB, asleep in host memory 0 B, asleep in files 0 B",
        ),
        (300_000.0, "reserved 0 B, asleep in host memory 24.0 MiB, asleep in files 0 B"),
        (500_000.0, "reserved 0 B, asleep in host memory 16.0 MiB, asleep in files 0 B"),
        (700_000.0, "reserved 10.0 MiB, asleep in host memory 0 B, asleep in files 0 B"),
        (900_000.0, "reserved 0 B, asleep in host memory 0 B, asleep in files 16.0 MiB"),
    ] {
        let at = point(page, time, mib(8));
        page.hover(at);
        let tip = page.text_of("#tip");
        assert!(tip.contains(said), "{time}: {tip}");
        let sleeps = tip.contains("\nasleep in ");
        assert_eq!(sleeps, said.contains("reserved 0 B"), "the allocation says it too: {tip}");
    }
    let list = page.text_of("#event-list");
    for said in
        ["asleep in host memory24.0 MiB", "on the device16.0 MiB", "asleep in files16.0 MiB"]
    {
        let plain: String = list.split_whitespace().collect();
        let said: String = format!("block 0: {said}").split_whitespace().collect();
        assert!(plain.contains(&said), "{said} is not in {list}");
    }
    let legend = page.text_of("#timeline .legend");
    assert!(legend.contains("asleep in host memory") && !legend.contains("dropped"), "{legend}");
    assert!(page.text_of("#figures").contains("Peak asleep in host memory"));
    assert!(color(page, 300_000.0, mib(24))[3] > 0, "a line at what sleeps");
}

pub(crate) fn host_memory_at_addresses_of_the_device_is_drawn(browser: &mut Browser) {
    let page = &mut open(browser, &report::from_trace(&sample::asleep(), "host-mapped"));
    for (time, said) in [
        (500_000.0, "host-mapped 0 B"),
        (
            700_000.0,
            "reserved 10.0 MiB, asleep in host memory 0 B, asleep in files 0 B, host-mapped 6.00 MiB",
        ),
        (900_000.0, "host-mapped 0 B"),
    ] {
        let at = point(page, time, mib(8));
        page.hover(at);
        let tip = page.text_of("#tip");
        assert!(tip.contains(said), "{time}: {tip}");
    }
    let list = page.text_of("#event-list");
    assert!(list.contains("host pages taken") && list.contains("host pages given back"), "{list}");
    assert!(page.text_of("#timeline .legend").contains("host-mapped"));
    assert!(page.text_of("#figures").contains("Peak host-mapped"));
}

pub(crate) fn names_never_become_elements(browser: &mut Browser) {
    let mut data = report::from_trace(&sample::three(), HOSTILE);
    data.facts.push(report::Fact { name: HOSTILE.into(), value: HOSTILE.into() });
    data.heaps[0].name = HOSTILE.into();
    let page = &mut open(browser, &data);
    let at = point(page, 500_000.0, mib(36));
    page.click(at);
    page.press("#live-mode [data-value=names]");
    page.type_into("#search-field", HOSTILE);
    page.press("#failures button");
    assert_eq!(page.number("document.querySelectorAll('img').length"), 0.0);
    assert_eq!(page.text("typeof window.hacked"), "undefined");
    assert_eq!(page.text_of("#title"), HOSTILE);
    assert!(page.text_of("#live").contains(HOSTILE));
}

pub(crate) fn wheel_and_keys_zoom_and_pan(browser: &mut Browser) {
    let page = &mut three(browser);
    let whole = picture(page);
    let at = point(page, 500_000.0, mib(30));
    page.wheel(at, -400.0);
    let [from, to, ..] = shown(page);
    assert!(from > 100_000.0 && to < 900_000.0, "zoomed in: {from}..{to}");
    assert!((f64::midpoint(from, to) - 500_000.0).abs() < 5_000.0, "around the pointer");
    assert_ne!(picture(page), whole);
    page.key("0");
    assert_eq!(picture(page), whole, "0 shows the whole recording again");

    page.key("w");
    page.key("w");
    let zoomed = shown(page);
    assert!(zoomed[1] - zoomed[0] < 600_000.0, "w zooms in: {zoomed:?}");
    page.key("d");
    let right = shown(page);
    assert!(right[0] > zoomed[0] && (right[1] - right[0] - (zoomed[1] - zoomed[0])).abs() < 1.0);
    page.key("a");
    assert!((shown(page)[0] - zoomed[0]).abs() < 1.0, "a goes back");
    page.key("s");
    page.key("s");
    assert_eq!(picture(page), whole, "s zooms out");

    page.js("document.getElementById('plot').focus()");
    page.key("ArrowUp");
    page.key("ArrowRight");
    let [from, to, ..] = shown(page);
    assert!(to - from < 800_000.0 && from > 0.0, "arrows do as well: {from}..{to}");
}

pub(crate) fn dragging_pans_and_the_strip_chooses(browser: &mut Browser) {
    let page = &mut three(browser);
    page.key("w");
    page.key("w");
    let before = shown(page);
    let (x, y) = point(page, f64::midpoint(before[0], before[1]), mib(30));
    page.drag((x, y), (x - 60.0, y));
    let after = shown(page);
    assert!(after[0] > before[0] + 10_000.0, "{before:?} {after:?}");
    page.key("0");
    let (middle, y) = page.middle_of("#overview");
    let width = page.number("document.getElementById('overview').getBoundingClientRect().width");
    page.drag((middle - 0.2 * width, y), (middle + 0.1 * width, y));
    let [from, to, ..] = shown(page);
    assert!((from - 300_000.0).abs() < 10_000.0, "{from}");
    assert!((to - 600_000.0).abs() < 10_000.0, "{to}");
}

pub(crate) fn two_fingers_zoom(browser: &mut Browser) {
    let page = &mut three(browser);
    page.resize(360, 740);
    let at = point(page, 500_000.0, mib(30));
    page.pinch(at, 20.0, 100.0);
    let [from, to, ..] = shown(page);
    assert!(to - from < 500_000.0 && from > 0.0, "{from}..{to}");
}

pub(crate) fn a_search_counts_highlights_and_steps(browser: &mut Browser) {
    let page = &mut three(browser);
    let [weights, activations] = [8, 20].map(|bytes| color(page, 500_000.0, mib(bytes)));
    page.type_into("#search-field", "ACTIV");
    assert_eq!(page.text_of("#search-count"), "1 hit in 3 allocations");
    assert_eq!(color(page, 500_000.0, mib(20)), activations, "a hit keeps its colour");
    assert_ne!(color(page, 500_000.0, mib(8)), weights, "the others fade");
    page.key("Enter");
    assert!(page.text_of("#readout").contains("Chosen: model / activations"));
    assert_eq!(page.text_of("#search-count"), "1. of 1 hit in 3 allocations");
    for (query, count) in [
        ("size>10M", "2 hits"),
        ("size>10M stream:0", "1 hit"),
        ("life<300ms", "1 hit"),
        ("model size<1M", "0 hits"),
        ("#2", "1 hit"),
        ("size>many", "not understood: size>many"),
    ] {
        page.type_into("#search-field", query);
        let said = page.text_of("#search-count");
        assert!(said.contains(count), "{query}: {said}");
    }
    page.key("Escape");
    assert_eq!(page.text_of("#search-count"), "");
}

pub(crate) fn colors_follow_the_choice(browser: &mut Browser) {
    let page = &mut three(browser);
    let legend = |page: &mut Page<'_>| page.text_of(".legend");
    assert!(legend(page).contains("model / weights"), "{}", legend(page));
    for (by, name) in [("stream", "stream 2"), ("size", "16 MiB"), ("lifetime", "100 ms – 1 s")] {
        page.choose("#color-by", by);
        let said = legend(page);
        assert!(said.contains(name), "{by}: {said}");
        let at = [8, 20, 36].map(|bytes| color(page, 500_000.0, mib(bytes)));
        assert!(at[0] != at[1], "{by}: {at:?}");
    }
}

pub(crate) fn models_are_called_models(browser: &mut Browser) {
    let mut page = open(browser, &sample::modelled());
    assert!(page.text_of(".legend").contains("reserved by PyTorch's default policy (model)"));
    assert!(!page.text_of(".legend").contains("(recorded)"));
    assert!(page.text_of("#figures").contains("not recorded"));
    assert!(page.text_of(".note").contains("PyTorch's default policy (model)"));
    assert!(page.text_of("#map-readout").contains("(model), not recorded"));
    assert!(page.text_of("#comparison").contains("model: computed from its policy"));
    drop(page);
    let recorded = open(browser, &report::from_trace(&sample::three(), "three")).text_of("main");
    assert!(recorded.contains("reserved (recorded)"));
    assert!(!recorded.contains("(model)"), "nothing is a model here");
}
