//! Ctrl-C in long work: what is done is shown, it is said to be partial, and no file is left behind.
use crate::signals::{empty, interrupted, is_empty, shown};
use crate::support::{churn, file};

#[test]
fn an_interrupted_plan_tells_its_best_and_writes_nothing() {
    let out = empty("interrupted-plan");
    // Thousands of buffers that nothing proves in a day.
    let trace = file("hard.csv", churn(6000, 1, 1 << 20).csv);
    let [plan, picture] = ["plan.json", "picture.svg"].map(|name| out.join(name));
    let (told, why) = interrupted(&[
        "plan",
        &trace,
        "--align",
        "1",
        "--time-limit",
        "86400",
        "--plan",
        shown(&plan),
        "--svg",
        shown(&picture),
        "--json",
    ]);
    let told: serde_json::Value = serde_json::from_str(&told).expect("one object");
    assert!(told["status"] == "feasible" || told["status"] == "undecided", "{told}");
    assert!(why.contains("no file is written"), "{why}");
    assert!(is_empty(&out), "neither a result nor a part of one");
}

#[test]
fn an_interrupted_fit_keeps_the_answers_that_it_gave() {
    let long = file("long-fit.csv", churn(60_000, 4, 1 << 20).csv);
    let (_, why) = interrupted(&["fit", &long, &long, &long, "--capacity", "1T", "--json"]);
    assert!(why.contains("of 3 traces were answered"), "{why}");
    let out = empty("interrupted-fit");
    let page = out.join("page.html");
    let arguments = ["fit", &long, "--capacity", "1T", "--allocator", "omniheap", "--out"];
    let (told, why) = interrupted(&[&arguments[..], &[shown(&page)]].concat());
    assert!(told.is_empty() && why.contains("0 of 1 traces were answered"), "{told}{why}");
    assert!(is_empty(&out), "neither a page nor a part of one");
}

#[test]
fn an_interrupted_batch_says_what_is_known() {
    let traces = [2, 4, 8, 4096].map(|batch: u64| {
        let mut csv = String::from("op,id,size,stream,time_us\n");
        for id in 0..60_000_u64 {
            csv += &format!("a,{id},{},0,{id}\n", batch * 512 * (1 + id % 7));
            if let Some(old) = id.checked_sub(64) {
                csv += &format!("r,{old},,0,{id}\nf,{old},,0,{id}\n");
            }
        }
        format!("--trace={batch}:{}", file(&format!("long-batch-{batch}.csv"), csv))
    });
    let [a, b, c, large] = &traces;
    // One alone is replayed, and nothing is searched on lines.
    for asked in [&[a, b, c][..], &[large]] {
        let asked: Vec<_> = asked.iter().map(|trace| trace.as_str()).collect();
        let asked = [&["batch", "--capacity", "1T", "--json"], &asked[..]].concat();
        let (told, why) = interrupted(&asked);
        assert_eq!(told, "", "there is no answer");
        assert!(why.contains("batch"), "{why}");
    }
}
