//! Tests of tags over streams of another owner: what sleeps keeps its addresses and its bytes, and what goes wrong
//! changes nothing.
#![expect(unsafe_code, reason = "puts memory to sleep")]
use super::scripted::Scripted;
use super::tests::*;
use super::{Device, Held, Resident};
use crate::graph::PoolId;
use crate::streams::Life;
use crate::tags::{Refusal, Tag, Target};
use core::ptr;
use core::time::Duration;
use omniheap::{AllocateError, ErrorKind, seam::Result};
use serde_json::Value;
use std::thread;

const GRAPH: PoolId = PoolId { captured: 1, named: 0 };

/// Does a thread's work inside a tag.
fn tagged<R>(tag: &str, work: impl FnOnce() -> R) -> R {
    Tag::enter(tag).expect("in no tag yet");
    let done = work();
    Tag::leave().expect("in a tag");
    done
}

fn sleep_to(device: &Device<Scripted>, tag: Option<&str>, to: &Target) -> Result<(), Refusal> {
    // SAFETY: the tests use what sleeps only after it woke up.
    unsafe { device.sleep(tag, to) }
}

fn sleep(device: &Device<Scripted>, tag: &str) {
    sleep_to(device, Some(tag), &Target::Host).expect("awake");
}

fn wake(device: &Device<Scripted>, tag: &str) {
    device.wake(Some(tag), 0).expect("asleep");
}

fn try_take(device: &Device<Scripted>, size: u64) -> Result<u64, AllocateError> {
    // SAFETY: the backend panics for a stream that is gone.
    unsafe { device.allocate(size, stream(1), Life::Unknown) }
}

/// Weights of a tag, each with a value of its own, beside memory of none.
fn weights(device: &Device<Scripted>, sizes: &[u64]) -> Vec<u64> {
    let all: Vec<u64> =
        tagged("weights", || sizes.iter().map(|size| take(device, *size, 1)).collect());
    (1..).zip(&all).for_each(|(value, address)| fill(device, *address, 1, value));
    all
}

fn all_hold(device: &Device<Scripted>, weights: &[u64]) -> bool {
    (1..).zip(weights).all(|(value, address)| holds(device, *address, value))
}

fn figure(device: &Device<Scripted>, tag: &str, name: &str) -> Value {
    device.residence()[tag][name].clone()
}

fn comes_back_from(target: &Target, at: &str) {
    let device = with_streams([1, 2]);
    let other = take(&device, MIB, 1);
    fill(&device, other, 1, 99);
    let all = weights(&device, &[4096, 3 * MIB, 40 * MIB]);
    let inside = figure(&device, "weights", "device").as_u64().expect("bytes");
    let outside = reserved(&device) - inside;
    sleep_to(&device, Some("weights"), target).expect("awake");
    assert_eq!(reserved(&device), outside, "all of the tag's memory went back");
    assert_eq!(figure(&device, "weights", "asleep"), true);
    assert_eq!(figure(&device, "weights", at), 4096 + 43 * MIB);
    assert_eq!(figure(&device, "weights", "device"), 0);
    assert!(holds(&device, other, 99), "other memory stays");
    drop(device.segments());
    wake(&device, "weights");
    assert!(all_hold(&device, &all));
    assert_eq!(figure(&device, "weights", at), 0);
    assert_eq!(figure(&device, "weights", "asleep"), false);
}

#[test]
fn what_sleeps_in_host_memory_comes_back_where_it_was() {
    comes_back_from(&Target::Host, "host");
}

#[test]
fn what_sleeps_in_a_file_comes_back_where_it_was() {
    comes_back_from(&Target::Disk(std::env::temp_dir().display().to_string()), "disk");
}

#[test]
fn what_sleeps_to_nothing_wakes_up_zeroed() {
    let device = with_streams([1]);
    let all = weights(&device, &[MIB]);
    sleep_to(&device, Some("weights"), &Target::Nothing).expect("awake");
    assert_eq!(figure(&device, "weights", "host"), 0);
    wake(&device, "weights");
    assert!(holds(&device, all[0], 0));
}

#[test]
fn a_sleep_waits_for_work_of_streams_that_nobody_named() {
    let device = with_streams([1, 2]);
    let all = weights(&device, &[MIB]);
    take(&device, MIB, 2);
    let backend = device.manager.backend();
    let late = backend.host.hold(backend.timeline(2)).expect("open");
    fill(&device, all[0], 2, 77);
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| sleep(&device, "weights"));
        // Long enough for the sleep to begin; what is shorter cannot make it fail.
        thread::sleep(Duration::from_millis(30));
        assert!(!sleeper.is_finished(), "a stream has not come to its work");
        drop(late);
    });
    wake(&device, "weights");
    assert!(holds(&device, all[0], 77), "the bytes left before the work was done");
}

#[test]
fn what_is_freed_asleep_is_gone_and_the_rest_is_not() {
    let device = with_streams([1, 2]);
    let all = weights(&device, &[MIB, 40 * MIB, MIB, 40 * MIB]);
    device.use_on(all[1], stream(2)).expect("it lives").expect("known");
    sleep(&device, "weights");
    free(&device, all[1]);
    free(&device, all[3]);
    assert_eq!(figure(&device, "weights", "host"), 2 * MIB);
    wake(&device, "weights");
    assert!(holds(&device, all[0], 1) && holds(&device, all[2], 3));
    let again = tagged("weights", || take(&device, 40 * MIB, 1));
    fill(&device, again, 1, 5);
    assert!(holds(&device, again, 5) && holds(&device, all[0], 1));
    [all[0], all[2], again].into_iter().for_each(|address| free(&device, address));
    device.trim().expect("it is there");
    assert_eq!(reserved(&device), 0);
}

#[test]
fn a_tag_is_the_threads_own() {
    let device = with_streams([1]);
    let (first, second) = tagged("weights", || {
        let other = thread::scope(|scope| scope.spawn(|| take(&device, MIB, 1)).join());
        (take(&device, MIB, 1), other.expect("it does not panic"))
    });
    fill(&device, second, 1, 9);
    sleep(&device, "weights");
    assert_eq!(figure(&device, "weights", "host"), MIB, "one of the two");
    assert!(holds(&device, second, 9));
    free(&device, first);
}

fn line(refused: Result<(), Refusal>) -> String {
    let refusal = refused.expect_err("refused");
    assert!(!refusal.is_short, "{}", refusal.line);
    refusal.line
}

#[test]
fn misuse_says_what_to_do_and_changes_nothing() {
    let device = with_streams([1]);
    let sleep_of = |tag| line(sleep_to(&device, Some(tag), &Target::Host));
    assert!(sleep_of("weights").contains("the tags are []"));
    let all = weights(&device, &[MIB]);
    assert!(sleep_of("wieghts").contains(r#"the tags are ["weights"]"#));
    assert!(line(device.wake(Some("none"), 0)).contains("nothing was allocated"));
    assert!(line(device.wake(Some("weights"), 0)).contains("awake already"));
    let nested = tagged("weights", || Tag::enter("other")).expect_err("nested");
    assert!(nested.contains(r#"leave "weights" first"#), "{nested}");
    assert!(Tag::enter("").is_err() && Tag::leave().is_err() && Tag::current().is_none());
    for wrong in ["", "gpu", "disk:", "disk"] {
        assert!(Target::parse(wrong).expect_err(wrong).contains("choose"));
    }
    let nowhere = Target::Disk("/nowhere/at/all".into());
    assert!(line(sleep_to(&device, Some("weights"), &nowhere)).contains("/nowhere/at/all"));
    assert!(all_hold(&device, &all), "still awake");

    sleep(&device, "weights");
    assert!(sleep_of("weights").contains("asleep already"));
    let error = tagged("weights", || {
        let error = try_take(&device, MIB).expect_err("it sleeps");
        assert!(device.explain(MIB, &error).contains(r#"wake("weights")"#));
        error
    });
    assert_eq!(error.kind(), ErrorKind::Asleep);
    assert_eq!(figure(&device, "weights", "host"), MIB);
    wake(&device, "weights");
    assert!(all_hold(&device, &all));
}

#[test]
fn a_wake_without_room_changes_nothing() {
    let device = with_streams([1]);
    let all = weights(&device, &[MIB, 70 * MIB]);
    sleep(&device, "weights");
    device.set_limit(64 * MIB).expect("above what is held");
    let before = device.residence();
    for tag in [Some("weights"), None] {
        let refusal = device.wake(tag, 0).expect_err("no room");
        assert!(refusal.is_short && refusal.line.contains("stays asleep"), "{}", refusal.line);
        assert_eq!((device.residence(), reserved(&device)), (before.clone(), 0));
    }
    device.set_limit(u64::MAX).expect("any");
    wake(&device, "weights");
    assert!(all_hold(&device, &all));
}

#[test]
fn a_wake_without_room_takes_host_memory_where_it_may() {
    let device = with_streams([1]);
    let all = weights(&device, &[MIB, 70 * MIB]);
    sleep(&device, "weights");
    device.set_limit(64 * MIB).expect("above what is held");
    assert!(device.wake(Some("weights"), MIB).expect_err("too little").is_short);
    device.wake(Some("weights"), 64 * MIB).expect("the host has as much");
    assert!(all_hold(&device, &all));
    let mapped = figure(&device, "weights", "host_mapped").as_u64().expect("bytes");
    assert!(mapped >= 7 * MIB && reserved(&device) <= 64 * MIB, "{mapped}");
    sleep(&device, "weights");
    device.set_limit(u64::MAX).expect("any");
    wake(&device, "weights");
    assert!(all_hold(&device, &all));
    assert_eq!(figure(&device, "weights", "host_mapped"), 0);
}

#[test]
fn without_a_name_all_tags_sleep_and_nothing_empty_is_kept() {
    let device = with_streams([1]);
    let all = weights(&device, &[MIB]);
    let cache = tagged("cache", || take(&device, MIB, 1));
    fill(&device, cache, 1, 33);
    let gone = take(&device, 8 * MIB, 1);
    free(&device, gone);
    sleep(&device, "cache");
    for _ in 0..2 {
        sleep_to(&device, None, &Target::Host).expect("those that are awake");
        assert_eq!(reserved(&device), 0);
    }
    for _ in 0..2 {
        device.wake(None, 0).expect("those that sleep");
        assert!(all_hold(&device, &all) && holds(&device, cache, 33));
    }
}

#[test]
fn memory_does_not_grow_with_cycles() {
    let device = with_streams([1]);
    let all = weights(&device, &[4096, MIB, 3 * MIB]);
    let mut held = Vec::new();
    for _ in 0..100 {
        sleep(&device, "weights");
        assert_eq!(reserved(&device), 0);
        wake(&device, "weights");
        held.push(reserved(&device));
    }
    assert!(held.iter().all(|now| *now == held[0]), "{held:?}");
    assert!(all_hold(&device, &all));
}

/// Captures on stream 1, and returns an address of the graph.
fn capture(device: &Device<Scripted>, size: u64) -> u64 {
    let backend = device.manager.backend();
    // SAFETY: without a filter.
    unsafe { device.begin(GRAPH, ptr::null_mut()) };
    backend.begin_capture_of(1, 1);
    let address = take(device, size, 1);
    backend.end_capture_of(1);
    device.end(GRAPH);
    address
}

/// Writes to an address, as a graph does that runs.
fn replay(address: u64, value: u8) {
    let start = ptr::with_exposed_provenance_mut::<u8>(usize::try_from(address).expect("host"));
    // SAFETY: host memory of a graph that is awake.
    unsafe { start.write_bytes(value, 4096) };
}

fn shows(address: u64, value: u8) -> bool {
    let start = ptr::with_exposed_provenance::<[u8; 4096]>(usize::try_from(address).expect("host"));
    // SAFETY: as above.
    unsafe { start.read() }.iter().all(|byte| *byte == value)
}

#[test]
fn graph_memory_sleeps_where_it_was_captured_in_a_tag_and_nowhere_else() {
    let device = with_streams([1]);
    let untagged = capture(&device, 3 * MIB);
    let inside = tagged("graphs", || capture(&device, 3 * MIB));
    [untagged, inside].into_iter().for_each(|address| replay(address, 4));
    let is_kept =
        |address| device.live.with(address, |Resident { held, .. }| matches!(held, Held::Kept(_)));
    assert_eq!([untagged, inside].map(is_kept), [Some(true); 2]);
    sleep_to(&device, None, &Target::Host).expect("awake");
    assert_eq!(figure(&device, "graphs", "device"), 0);
    assert!(shows(untagged, 4), "its owner did not say that it may sleep");
    device.wake(None, 0).expect("asleep");
    assert!(shows(inside, 4));
    replay(inside, 5);
    sleep(&device, "graphs");
    free(&device, inside);
    (0..2).for_each(|_| device.release(GRAPH));
    wake(&device, "graphs");
    free(&device, untagged);
    device.trim().expect("it is there");
    assert_eq!(reserved(&device), 0);
}

#[test]
fn a_capture_in_a_tag_is_not_spoiled_by_holes_of_other_streams() {
    let device = with_streams([1, 2]);
    let backend = device.manager.backend();
    let hole = tagged("graphs", || take(&device, 24 * MIB, 2));
    let late = backend.host.hold(backend.timeline(2)).expect("open");
    fill(&device, hole, 2, 8);
    free(&device, hole);
    let inside = tagged("graphs", || capture(&device, 20 * MIB));
    replay(inside, 6);
    drop(late);
    synchronize(&device);
    assert!(shows(inside, 6), "another stream had the bytes still");
}

#[test]
fn nothing_sleeps_or_wakes_during_a_capture() {
    let device = with_streams([1]);
    let all = weights(&device, &[MIB]);
    // SAFETY: without a filter.
    unsafe { device.begin(GRAPH, ptr::null_mut()) };
    assert!(line(sleep_to(&device, Some("weights"), &Target::Host)).contains("end it first"));
    device.end(GRAPH);
    assert!(all_hold(&device, &all));
    sleep(&device, "weights");
    // SAFETY: as above.
    unsafe { device.begin(GRAPH, ptr::null_mut()) };
    assert!(line(device.wake(Some("weights"), 0)).contains("end it first"));
    device.end(GRAPH);
    wake(&device, "weights");
    assert!(all_hold(&device, &all));
}

#[test]
fn threads_free_while_a_tag_falls_asleep_and_wakes_up() {
    let device = with_streams([1, 2]);
    for round in 0..20 {
        let all = weights(&device, &[MIB / 8; 24]);
        let (gone, kept) = all.split_at(12);
        thread::scope(|scope| {
            scope.spawn(|| gone.iter().for_each(|address| free(&device, *address)));
            sleep(&device, "weights");
            wake(&device, "weights");
        });
        let is_right = |(value, address): (u8, &u64)| holds(&device, *address, value);
        assert!((13..).zip(kept).all(is_right), "round {round}");
        kept.iter().for_each(|address| free(&device, *address));
    }
    device.trim().expect("it is there");
    assert_eq!(reserved(&device), 0);
}
