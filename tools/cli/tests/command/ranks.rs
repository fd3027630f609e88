//! `omniheap ranks`: one picture of many files.
use crate::support::{churn, folder, json, omniheap, refuses, text};
use omniheap::trace::binary::{Record, Writer};
use omniheap::trace::{Alignment, Backing, HeapId, LabelId, Rung, StreamId};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

/// An empty folder of this test.
fn empty(name: &str) -> PathBuf {
    let path = folder().join("ranks").join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("the folder for tests can be written");
    path
}

fn shown(path: &std::path::Path) -> &str {
    path.to_str().expect("the folder has a plain name")
}

fn spread<'a>(found: &'a Value, name: &str) -> &'a Value {
    let spreads = found["spreads"].as_array().expect("figures");
    spreads.iter().find(|spread| spread["name"] == name).expect("this figure")
}

#[test]
fn traces_and_reports_of_the_same_rank_give_the_same_figures_and_totals_are_sums() {
    let (traces, reports) = (empty("traces"), empty("reports"));
    let mut peaks = 0;
    for rank in 0..6_u32 {
        let sample = churn(300 + 50 * rank, 2, 1 << 20);
        peaks += sample.peak_live;
        let trace = traces.join(format!("rank{rank}.csv"));
        fs::write(&trace, sample.csv).expect("a file");
        let out = reports.join(format!("rank{rank}.json"));
        let made = omniheap(&["report", shown(&trace), "--format", "json", "-o", shown(&out)]);
        assert!(made.status.success(), "{}", text(&made.stderr));
    }
    let found = [&traces, &reports].map(|path| json(&["ranks", shown(path)]).remove(0));
    for found in &found {
        assert_eq!(spread(found, "peak live")["total"], peaks);
        assert_eq!(found["worst"]["rank"], 5);
        assert_eq!(found["missing_count"], 0);
    }
    assert_eq!(spread(&found[0], "live"), spread(&found[1], "live"));
    assert_eq!(spread(&found[0], "requests"), spread(&found[1], "requests"));
    assert_eq!(found[0]["parting"], found[1]["parting"], "packed events are the same sequence");
    assert_eq!(found[0]["parting"]["after"].as_u64().map(|after| after > 0), Some(true));
}

#[test]
fn each_rank_has_a_page_that_the_jobs_page_leads_to() {
    let (traces, out) = (empty("paged"), empty("pages"));
    for rank in 0..3_u32 {
        let trace = traces.join(format!("rank{rank}.csv"));
        fs::write(&trace, churn(200, 2, 1 << 20).csv).expect("a file");
    }
    let last = traces.join("rank2.csv");
    let digest = omniheap(&["ranks", shown(&last), "--digest"]).stdout;
    fs::write(&last, digest).expect("a file");
    let page = out.join("job.html");
    json(&["ranks", shown(&traces), "--out", shown(&page), "--pages"]);
    let job = fs::read_to_string(&page).expect("it was written");
    assert!(job.contains(r#""pages":{"0":"job.ranks/rank0.html","1":"job.ranks/rank1.html"}"#));
    for rank in ["rank0.html", "rank1.html"] {
        let page = fs::read_to_string(out.join("job.ranks").join(rank)).expect("it was written");
        assert!(page.starts_with("<!doctype html>"));
    }
    assert!(!out.join("job.ranks/rank2.html").exists(), "a digest has no events");
    let alone = omniheap(&["ranks", shown(&traces), "--pages"]);
    assert_eq!(alone.status.code(), Some(2), "pages lie beside a page");
}

#[test]
fn digests_made_elsewhere_give_the_same_picture_as_the_files() {
    let (traces, digests) = (empty("whole"), empty("digests"));
    for rank in 0..4_u32 {
        let name = format!("rank{rank}.csv");
        fs::write(traces.join(&name), churn(200 + 30 * rank, 2, 1 << 20).csv).expect("a file");
        let made = omniheap(&["ranks", shown(&traces.join(&name)), "--digest"]);
        assert!(made.status.success() && made.stdout.len() <= 64 << 10, "{}", text(&made.stderr));
        fs::write(digests.join(&name), made.stdout).expect("a file");
    }
    let found = [&traces, &digests].map(|path| json(&["ranks", shown(path)]).remove(0));
    assert_eq!(found[0], found[1]);
    refuses(&["ranks", shown(&traces), "--digest"], 2, "directory");
    refuses(&["ranks", "/nowhere/rank0.csv", "--digest"], 2, "cannot read");
}

/// A recording that holds 1,000 bytes, uses some, and fails in the middle when it uses most of them.
fn failing(used: u64) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    let (heap, backing) = (HeapId(0), Backing::Memory);
    writer.record(0, &Record::BlockAllocate { block: 0, size: 1000, heap, backing });
    let (stream, align, label) = (StreamId(0), Alignment::UNKNOWN, LabelId::NONE);
    writer.record(0, &Record::Allocate { id: 0, size: used, stream, align, label });
    if used > 500 {
        writer.record(500, &Record::OutOfMemory { size: 500, stream, rung: Rung::Failed });
    }
    writer.record(1000, &Record::FreeCompleted { id: 0, stream });
    writer.finish().expect("a vector takes every byte")
}

#[test]
fn a_failure_says_what_was_missed_and_what_the_others_had() {
    let path = empty("failure");
    for (rank, size) in [(0, 100), (1, 900)] {
        fs::write(path.join(format!("rank{rank}.trace")), failing(size)).expect("a file");
    }
    let found = json(&["ranks", shown(&path)]).remove(0);
    let failure = &found["failures"][0];
    assert_eq!((&failure["rank"], &failure["missing"]), (&1.into(), &400.into()), "{failure}");
    assert_eq!(failure["request"]["live"], 900);
    assert_eq!(failure["others_live"]["max"]["value"], 100);
    assert_eq!(failure["others_free"]["max"]["value"], 900);
    assert_eq!(found["parting"]["apart"], serde_json::json!([1]));
}

#[test]
fn what_is_missing_doubled_damaged_or_of_another_version_is_named() {
    let path = empty("bad");
    let good = "op,id,size,stream,time_us\na,0,100,0,0\n";
    for name in ["rank0.csv", "rank3.csv", "run_rank3.csv", "nothing.csv"] {
        fs::write(path.join(name), good).expect("a file");
    }
    fs::write(path.join("rank4.json"), "{\"schema\":1,\"title\":\"\"}").expect("a file");
    fs::write(path.join("rank5.json"), "{\"rank_schema\":2}").expect("a file");
    fs::write(path.join("rank6.json"), "{\"rank_schema\":1,\"ra").expect("a file");
    fs::write(path.join("rank7.pickle"), b"\x80\x04}q").expect("a file");
    fs::write(path.join("rank8.csv"), "").expect("a file");
    fs::write(path.join(".hidden"), "x").expect("a file");
    fs::create_dir_all(path.join("rank9")).expect("a folder");
    let found = json(&["ranks", shown(&path)]).remove(0);
    assert_eq!((&found["ranks"], &found["missing_count"]), (&2.into(), &2.into()), "{found}");
    assert_eq!(found["missing"], serde_json::json!([1, 2]));
    assert_eq!(found["doubled"][0]["left_out"], "run_rank3.csv");
    let problems = found["problems"].as_array().expect("problems");
    let said: Vec<_> = problems.iter().map(|it| it["why"].as_str().expect("a sentence")).collect();
    let words = ["no rank", "schema version", "another version", "not whole", "cut off", "cut off"];
    assert_eq!(said.len(), words.len(), "{said:?}");
    for (said, word) in said.iter().zip(words) {
        assert!(said.contains(word), "{said:?} does not say {word:?}");
    }
    let plain = text(&omniheap(&["ranks", shown(&path)]).stdout);
    assert!(plain.contains("missing ranks: 1, 2") && plain.contains("rank 3 twice"), "{plain}");
}

#[test]
fn a_page_may_lie_beside_the_traces() {
    let path = empty("beside");
    fs::write(path.join("rank0.csv"), churn(100, 1, 1 << 20).csv).expect("a file");
    let page = path.join("job.html");
    let found = json(&["ranks", shown(&path), "--out", shown(&page)]).remove(0);
    assert_eq!(found["problems"], Value::Array(Vec::new()), "what is being written is no rank");
    assert!(page.exists());
}

#[test]
fn folders_without_ranks_are_refused_and_no_page_is_left() {
    let path = empty("none");
    refuses(&["ranks", shown(&path)], 2, "no file");
    refuses(&["ranks", shown(&path.join("absent"))], 2, "cannot list");
    fs::write(path.join("readme.txt"), "hello").expect("a file");
    let page = folder().join("never.html");
    refuses(&["ranks", shown(&path), "--out", shown(&page)], 2, "not a trace");
    assert!(!page.exists());
}

#[test]
fn a_thousand_ranks_fit_one_page() {
    let path = empty("thousand");
    let csv = churn(400, 2, 1 << 20).csv;
    for rank in 0..1000 {
        fs::write(path.join(format!("job.rank{rank:04}.csv")), &csv).expect("a file");
    }
    let page = folder().join("thousand.html");
    let found = json(&["ranks", shown(&path), "--out", shown(&page)]).remove(0);
    assert_eq!((&found["ranks"], &found["parting"]), (&1000.into(), &Value::Null));
    let page = fs::read_to_string(page).expect("a page");
    assert!(page.len() <= 5 << 20, "{}", page.len());
    assert!(page.starts_with("<!doctype html>") && page.contains("\"rank\":999"));
}
