//! Colours, sizes and what is broken.

use crate::browser::{Browser, Page};
use crate::plot::{color, folder, open, shown};
use crate::sample;
use core::ops::ControlFlow;
use omniheap_trace::ranks::{self, Job};
use omniheap_trace::report;

/// Returns the brightness of the page's background, 0 to 255.
fn brightness(page: &mut Page<'_>) -> f64 {
    page.number(
        "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) / 3",
    )
}

pub(crate) fn colors_follow_the_system_until_they_are_switched(browser: &mut Browser) {
    let page = &mut open(browser, &report::from_trace(&sample::three(), "three"));
    page.prefer("light");
    assert!(brightness(page) > 200.0);
    let line = color(page, 100_000.0, 64.0 * sample::MIB as f64);
    page.prefer("dark");
    assert!(brightness(page) < 60.0);
    let light_line = color(page, 100_000.0, 64.0 * sample::MIB as f64);
    assert!(light_line[0] > line[0] + 100, "what is drawn follows: {line:?}, {light_line:?}");
    assert_eq!(page.text_of("#theme"), "Light");
    page.press("#theme");
    assert!(brightness(page) > 200.0, "switched");
    page.press("#theme");
    assert!(brightness(page) < 60.0, "and back");
    page.prefer("light");
    assert!(brightness(page) < 60.0, "the switch stays");
}

pub(crate) fn a_phone_shows_everything_without_scrolling_sideways(browser: &mut Browser) {
    let pages = [
        report::from_trace(
            &sample::three(),
            "a_long_title_without_any_space_that_a_phone_could_break",
        ),
        sample::modelled(),
    ];
    for data in pages {
        let page = &mut open(browser, &data);
        page.resize(360, 740);
        assert_eq!(page.number("document.documentElement.scrollWidth"), 360.0, "{}", data.title);
        let outside = page.js(
            "[...document.querySelectorAll('section, button, select, input, canvas, h2')].filter((each) => \
             each.offsetParent && (each.getBoundingClientRect().right > 361 || each.getBoundingClientRect().left < 0)).map((each) => each.outerHTML.slice(0, 80))",
        );
        assert_eq!(outside, serde_json::json!([]), "{}", data.title);
        let tall = page.number("document.getElementById('theme').getBoundingClientRect().height");
        assert!(tall < 40.0, "the switch stays on one line: {tall}");
        let [from, to, ..] = shown(page);
        assert_eq!((from, to), (0.0, 1_000_000.0));
        assert!(color(page, 100_000.0, 4.0 * sample::MIB as f64)[3] == 255, "and it is drawn");
    }
}

pub(crate) fn focus_can_be_seen(browser: &mut Browser) {
    let page = &mut open(browser, &report::from_trace(&sample::three(), "three"));
    page.key("Tab");
    let outline = page.text("getComputedStyle(document.activeElement).outlineStyle");
    assert_eq!(outline, "solid");
    assert_ne!(page.text("document.activeElement.tagName"), "BODY");
}

pub(crate) fn a_page_that_cannot_be_shown_says_why(browser: &mut Browser) {
    let mut data = report::from_trace(&sample::three(), "broken");
    data.events.as_mut().expect("it has events").sizes = "bm90IHpsaWI=".into();
    let file = folder().join("broken.html");
    report::write_html(&data, std::fs::File::create(&file).expect("it can be written"))
        .expect("it is written");
    let said = browser.refuses(&file);
    assert!(said.contains("cannot be shown"), "{said}");
}

pub(crate) fn no_column_of_the_live_table_is_cut_off(browser: &mut Browser) {
    let page = &mut open(browser, &report::from_trace(&sample::stack(), "stack"));
    for width in [1400, 1000, 420] {
        page.resize(width, 900);
        let over =
            "(box => box.scrollWidth - box.clientWidth)(document.querySelector('#live .scroll'))";
        assert_eq!(page.number(over), 0.0, "{width}: the table is wider than its place");
        let name = "document.querySelector('#live td button').getBoundingClientRect().width";
        assert!(page.number(name) > 40.0, "{width}: the name cannot be read");
    }
}

pub(crate) fn ranks_are_on_one_clock(browser: &mut Browser) {
    let jobs = folder().join("ranks");
    std::fs::create_dir_all(&jobs).expect("the folder can be written");
    for (rank, seconds) in [(0, 2), (1, 1)] {
        let csv = format!(
            "op,id,size,stream,time_us\na,0,16777216,0,0\nf,0,,0,{}\n",
            seconds * 1_000_000
        );
        std::fs::write(jobs.join(format!("rank{rank}.csv")), csv).expect("it can be written");
    }
    let mut job = Job::open(&jobs, |_, _| ControlFlow::Continue(())).expect("two ranks");
    job.link(1, "pages of 100%/rank#1.html".into());
    let file = folder().join("ranks.html");
    ranks::write_html(&job, "two", std::fs::File::create(&file).expect("it can be written"))
        .expect("it is written");
    let page = &mut browser.open(&file);
    // A quarter and three quarters of the way: the second rank ends halfway.
    let drawn = page.js(
        "(() => { const canvas = document.getElementById('bands'); \
         const at = (share, line) => canvas.getContext('2d').getImageData(Math.round(60 + share * (canvas.width - 60)), 18 + 14 * line + 7, 1, 1).data[3] > 0; \
         return [at(0.25, 0), at(0.75, 0), at(0.25, 1), at(0.75, 1)]; })()",
    );
    assert_eq!(drawn, serde_json::json!([true, true, true, false]));
    let row = "(box => [box.left, box.top, box.width])(document.getElementById('bands').getBoundingClientRect())";
    let at: [f64; 3] = serde_json::from_value(page.js(row)).expect("three numbers");
    page.hover((at[0] + 60.0 + 0.2 * (at[2] - 60.0), at[1] + 18.0 + 14.0 + 7.0));
    assert!(page.text_of("#tip").starts_with("rank 1: peak 16.0 MiB"));
    page.hover((at[0] + 60.0 + 0.8 * (at[2] - 60.0), at[1] + 18.0 + 14.0 + 7.0));
    assert_eq!(page.js("document.getElementById('tip').hidden"), true, "it has ended there");
    let links = page.js("[...document.querySelectorAll('a')].map((it) => [it.textContent, it.getAttribute('href')])");
    let encoded = "pages%20of%20100%25/rank%231.html";
    assert!(
        links.as_array().expect("a list").contains(&serde_json::json!(["1", encoded])),
        "{links}"
    );
    assert!(links.as_array().expect("a list").iter().all(|it| it[1] == encoded), "{links}");
    page.resize(420, 800);
    assert_eq!(page.number("document.documentElement.scrollWidth"), 420.0);
    page.prefer("dark");
    assert_eq!(page.text_of("#theme"), "Light");
}
