//! Ranks of a job: folders of files, digests that came from elsewhere, and pages of many ranks.

use crate::sample;
use core::ops::ControlFlow;
use omniheap_trace::binary::{Record, Writer};
use omniheap_trace::ranks::{self, Digest, Failed, Job};
use omniheap_trace::{Alignment, ErrorKind, LabelId, Limits, Rung, StreamId, Trace, report};
use serde_json::Value;
use std::fs;
use std::panic::catch_unwind;
use std::sync::Mutex;

#[test]
fn a_folder_is_read_in_order_without_what_is_hidden() {
    let folder = std::env::temp_dir().join(format!("omniheap-ranks-{}", std::process::id()));
    fs::create_dir_all(folder.join("rank7")).unwrap();
    for name in ["rank2.trace", "rank0.trace", "b1.trace", "a1.trace", ".rank9", "nobody.trace"] {
        fs::write(folder.join(name), sample::every_record()).unwrap();
    }
    fs::write(folder.join("rank5.trace"), "no trace").unwrap();
    let told = Mutex::new(Vec::new());
    let job = Job::open(&folder, |done, all| {
        told.lock().unwrap().push((done, all));
        ControlFlow::Continue(())
    });
    let job = job.unwrap();
    let mut told = told.into_inner().unwrap();
    told.sort_unstable();
    assert_eq!(told, (1..=6).map(|done| (done, 6)).collect::<Vec<_>>());
    assert_eq!(job.ranks().map(|(rank, _)| rank).collect::<Vec<_>>(), [0, 1, 2]);
    let doubled = &job.doubled()[0];
    assert_eq!((&*doubled.kept, &*doubled.left_out), ("a1.trace", "b1.trace"));
    let problems: Vec<_> = job.problems().iter().map(|problem| &*problem.file).collect();
    assert_eq!(problems, ["nobody.trace", "rank5.trace"]);
    let stopped = Job::open(&folder, |_, _| ControlFlow::Break(())).unwrap();
    assert!(stopped.ranks().len() + stopped.problems().len() + stopped.doubled().len() < 6);
    assert!(Job::open(&folder.join("absent"), |_, _| ControlFlow::Continue(())).is_err());
    assert!(Digest::open(&folder.join("absent")).unwrap_err().why.starts_with("cannot read: "));
    let open = || Job::open(&folder, |done, _| panic!("after {done}"));
    assert!(catch_unwind(open).is_err(), "what was read is not lost in silence");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn digests_are_read_back_up_to_their_limits() {
    let digest = Digest::read(&sample::every_record()[..], "rank3.trace").unwrap();
    assert_eq!((digest.rank, &*digest.origin), (Some(3), "rank3.trace"));
    let text = serde_json::to_string(&digest).unwrap();
    assert_eq!(Digest::read(text.as_bytes(), "rank3.trace").unwrap(), digest);
    let refused = |text: &str| match Digest::read(text.as_bytes(), "").unwrap_err().kind() {
        ErrorKind::Malformed(what) => (*what).to_owned(),
        other => format!("{other:?}"),
    };
    let schema = "\"rank_schema\":1";
    assert!(refused(&text.replace(schema, "\"rank_schema\":2")).contains("another version"));
    assert!(refused(&text[..text.len() - 1]).contains("not whole"));
    assert!(refused(&text.replace("\"failures\"", "\"others\"")).contains("not JSON of"));
    let longest = text.clone() + &" ".repeat(Digest::MAX_BYTES - text.len());
    assert_eq!(Digest::read(longest.as_bytes(), "rank3.trace").unwrap(), digest);
    assert!(refused(&(longest + " ")).contains("OverLimit"));
    for (change, what) in [
        (Digest { live_band: vec![1; ranks::BAND - 1], ..digest.clone() }, "128 parts"),
        (Digest { reserved_band: vec![1; ranks::BAND + 1], ..digest.clone() }, "128 parts"),
        (Digest { failed: vec![Failed::default(); 17], ..digest.clone() }, "lists longer"),
    ] {
        assert!(refused(&serde_json::to_string(&change).unwrap()).contains(what), "{what}");
    }
    let mut strange = digest.clone();
    strange.sequence.stride = 3;
    assert!(refused(&serde_json::to_string(&strange).unwrap()).contains("lists longer"));
    let most = Digest { failed: vec![Failed::default(); 16], ..digest };
    let text = serde_json::to_string(&most).unwrap();
    assert_eq!(Digest::read(text.as_bytes(), "rank3.trace").unwrap(), most);
}

/// The label of the only allocation, which lies in labels of these lengths, by its trace and by its report.
fn label(lengths: &[usize]) -> [String; 2] {
    let mut recorder = Writer::new(Vec::new());
    let (stream, align) = (StreamId(0), Alignment::UNKNOWN);
    let name = |parent, length: &usize| recorder.label(parent, &"é".repeat(*length));
    let label = lengths.iter().fold(LabelId::NONE, name);
    recorder.record(0, &Record::Allocate { id: 0, size: 1, stream, align, label });
    let trace = Trace::read(&recorder.finish().unwrap()[..], &Limits::default()).unwrap();
    let data = report::from_trace(&trace, "a label");
    let digests = [Digest::of_trace(&trace), Digest::of_report(&data).unwrap()];
    digests.map(|digest| digest.largest_label.unwrap().label)
}

#[test]
fn of_a_long_label_a_trace_and_its_report_tell_the_same_end() {
    // Two bytes each, and a stroke between two parts: 159 to 163 bytes, and much more.
    for lengths in [
        &[40, 39][..],
        &[40, 40],
        &[79],
        &[80],
        &[81],
        &[20, 30, 30],
        &[1; 50],
        &[1; 54],
        &[70, 60, 50],
    ] {
        let [traced, reported] = label(lengths);
        assert_eq!(traced, reported, "{lengths:?}");
        let bytes = 2 * lengths.iter().sum::<usize>() + lengths.len() - 1;
        assert_eq!(traced.starts_with('…'), bytes > 160, "{lengths:?}");
        assert!(traced.len() <= 160 + '…'.len_utf8() && traced.len() >= bytes.min(160) - 1);
    }
}

#[test]
fn of_many_failures_a_report_describes_sixteen() {
    let mut recorder = Writer::new(Vec::new());
    for size in 1..=20 {
        let (stream, rung) = (StreamId(0), Rung::Failed);
        recorder.record(size, &Record::OutOfMemory { size, stream, rung });
    }
    let trace = Trace::read(&recorder.finish().unwrap()[..], &Limits::default()).unwrap();
    let data = report::from_trace(&trace, "short");
    for digest in [Digest::of_trace(&trace), Digest::of_report(&data).unwrap()] {
        let described: Vec<u64> = digest.failed.iter().map(|failed| failed.requested).collect();
        assert_eq!((described, digest.failures), ((1..=16).collect(), 20));
    }
}

#[test]
fn a_failure_is_compared_with_the_same_part_of_the_other_runs() {
    let band = |first: u64| (0..ranks::BAND as u64).map(|part| first + part).collect();
    let other = Digest {
        rank: Some(1),
        duration_us: 1279,
        live_band: band(1000),
        reserved_band: band(5000),
        ..Digest::default()
    };
    for (time_us, part) in [(0, 0), (9, 0), (10, 1), (1269, 126), (1270, 127), (9999, 127)] {
        let failed = vec![Failed { time_us, requested: 1, ..Failed::default() }];
        let own = Digest { rank: Some(0), failures: 1, failed, ..Digest::default() };
        let job = Job::new([Ok(own), Ok(other.clone())]);
        let (count, failures) = job.failures();
        let live = failures[0].others_live.as_ref().map(|live| live.max.value);
        let free = failures[0].others_free.as_ref().map(|free| free.max.value);
        assert_eq!((count, live, free), (1, Some(1000 + part), Some(4000)), "{time_us}");
    }
}

#[test]
fn what_a_request_missed_is_what_the_largest_hole_lacked() {
    let failed = |requested, largest_hole| {
        Failed { requested, live: 30, reserved: 100, largest_hole, time_us: 0 }.missing()
    };
    assert_eq!((failed(90, None), failed(90, Some(40))), (20, 50));
    assert_eq!((failed(60, None), failed(30, Some(40))), (0, 0));
}

/// The rows of a page.
fn rows(job: &Job) -> Vec<u64> {
    let mut page = Vec::new();
    ranks::write_html(job, "many", &mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    let (_, data) = page.split_once("id=\"data\">").unwrap();
    let data: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
    assert_eq!(data["ranks"], job.ranks().len());
    let rows = data["rows"].as_array().unwrap();
    rows.iter().map(|row| row["rank"].as_u64().unwrap()).collect()
}

/// So many ranks, of which the first some failed; the last one is the worst.
fn many(count: u32, failing: u32) -> Job {
    Job::new((0..count).map(|rank| {
        Ok(Digest {
            rank: Some(rank),
            origin: format!("{rank:05}"),
            failures: u64::from(rank < failing),
            peak_live_bytes: u64::from(rank),
            ..Digest::default()
        })
    }))
}

#[test]
fn of_many_ranks_a_page_draws_the_worst_those_that_failed_and_an_even_choice() {
    assert_eq!(rows(&many(1000, 3)).len(), 1000, "all of a thousand");
    let drawn = rows(&many(1001, 4));
    let even = (0..1001).filter(|rank| rank % 2 == 0 || *rank < 4);
    assert_eq!(drawn, even.collect::<Vec<_>>(), "every other one; 1000 is the worst");
    let drawn = rows(&many(2999, 0));
    let even = (0..2999).filter(|rank| rank % 3 == 0 || *rank == 2998);
    assert_eq!(drawn, even.collect::<Vec<_>>());
    // No more than a thousand that stand out: the thousand first ones.
    let drawn = rows(&many(3500, 2500));
    let even = (0..3500).filter(|rank| rank % 4 == 0 || *rank < 1000);
    assert_eq!(drawn, even.collect::<Vec<_>>());
}
