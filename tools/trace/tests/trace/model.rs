//! The model of PyTorch's policy on traces small enough to check by hand.

use omniheap_trace::model::{self, Observe, PyTorch};
use omniheap_trace::{AllocationId, Limits, Trace};

const MIB: u64 = 1 << 20;

fn trace(lines: &[&str]) -> Trace {
    let text = format!("op,id,size,stream,time_us\n{}\n", lines.join("\n"));
    Trace::read(text.as_bytes(), &Limits::default()).unwrap()
}

fn reserved(lines: &[&str]) -> u64 {
    model::pytorch(&trace(lines)).peak_reserved_bytes
}

#[test]
fn the_ratio_is_reserved_by_live_and_one_for_nothing() {
    let outcome = model::pytorch(&trace(&["a,0,1048576,0,0"]));
    assert!((outcome.ratio() - 2.0).abs() < 1e-9, "{outcome:?}");
    assert!((model::Outcome::default().ratio() - 1.0).abs() < 1e-9);
}

#[test]
fn block_sizes_follow_the_three_classes() {
    assert_eq!(reserved(&["a,0,1,0,0"]), 2 * MIB);
    assert_eq!(reserved(&["a,0,1048576,0,0"]), 2 * MIB);
    assert_eq!(reserved(&["a,0,1048577,0,0"]), 20 * MIB);
    assert_eq!(reserved(&["a,0,10485248,0,0"]), 20 * MIB, "just below 10 MiB");
    assert_eq!(reserved(&["a,0,10485760,0,0"]), 10 * MIB, "10 MiB has a block of its own");
    assert_eq!(reserved(&["a,0,10485761,0,0"]), 12 * MIB, "rounded to 2 MiB");
}

#[test]
fn small_requests_share_a_block_and_large_ones_do_not_use_it() {
    assert_eq!(reserved(&["a,0,1048576,0,0", "a,1,1048064,0,0", "a,2,512,0,0"]), 2 * MIB);
    assert_eq!(reserved(&["a,0,1048576,0,0", "a,1,1048064,0,0", "a,2,513,0,0"]), 4 * MIB);
    assert_eq!(reserved(&["a,0,512,0,0", "f,0,,0,0", "a,1,2097152,0,0"]), 22 * MIB);
}

#[test]
fn a_large_rest_of_one_mebibyte_is_not_split_off() {
    // 20 MiB - 9 MiB - 9 MiB leaves 2 MiB, which is split; 20 - 19 leaves 1 MiB, which stays with the piece.
    assert_eq!(reserved(&["a,0,9437184,0,0", "a,1,9437184,0,0", "a,2,2097152,0,0"]), 20 * MIB);
    let mut lines = vec!["a,0,20971520,0,0", "f,0,,0,0", "a,1,19922944,0,0"];
    lines.push("a,2,1048577,0,0");
    assert_eq!(reserved(&lines), 40 * MIB);
}

#[test]
fn streams_do_not_share_and_free_pieces_merge() {
    assert_eq!(reserved(&["a,0,512,0,0", "f,0,,0,0", "a,1,512,1,0"]), 4 * MIB);
    let merged = ["a,0,5242880,0,0", "a,1,5242880,0,0", "a,2,5242880,0,0", "a,3,5242880,0,0"];
    let frees = ["f,0,,0,0", "f,2,,0,0", "f,1,,0,0", "a,4,15728640,0,0"];
    assert_eq!(reserved(&[&merged[..], &frees[..]].concat()), 20 * MIB);
}

#[test]
fn best_fit_takes_the_smallest_piece() {
    // Pieces of 4 and 6 MiB are free; 4 MiB must take the 4, so that 6 MiB still fits.
    let lines = ["a,0,4194304,0,0", "a,1,4194304,0,0", "a,2,6291456,0,0", "a,3,6291456,0,0"];
    let after = ["f,0,,0,0", "f,2,,0,0", "a,4,4194304,0,0", "a,5,6291456,0,0"];
    assert_eq!(reserved(&[&lines[..], &after[..]].concat()), 20 * MIB);
}

#[test]
fn bytes_wait_for_the_free_to_complete() {
    assert_eq!(reserved(&["a,0,20971520,0,0", "r,0,,0,0", "a,1,20971520,0,0"]), 40 * MIB);
    assert_eq!(
        reserved(&["a,0,20971520,0,0", "r,0,,0,0", "f,0,,0,0", "a,1,20971520,0,0"]),
        20 * MIB
    );
}

#[test]
fn cached_blocks_go_back_only_when_the_device_is_full() {
    let trace = trace(&["a,0,20971520,0,0", "f,0,,0,0", "a,1,31457280,0,0", "a,2,20971520,0,0"]);
    let outcome = model::replay(&trace, PyTorch::with_capacity(40 * MIB), &mut ());
    assert_eq!((outcome.peak_reserved_bytes, outcome.oom, outcome.driver_calls), (30 * MIB, 1, 3));
    let roomy = model::replay(&trace, PyTorch::unlimited(), &mut ());
    assert_eq!((roomy.peak_reserved_bytes, roomy.oom, roomy.driver_calls), (50 * MIB, 0, 2));
}

/// Checks that no two live allocations overlap and that all lie inside their blocks.
#[derive(Default)]
struct Overlap {
    blocks: Vec<u64>,
    places: Vec<(u32, u64)>,
}

impl Observe for Overlap {
    fn block_allocated(&mut self, block: u32, size: u64) {
        assert_eq!(block as usize, self.blocks.len());
        self.blocks.push(size);
    }
    fn bound(&mut self, id: AllocationId, block: u32, offset: u64) {
        assert_eq!(id.0 as usize, self.places.len());
        self.places.push((block, offset));
    }
}

#[test]
fn live_allocations_never_overlap() {
    let mut lines = Vec::new();
    let mut live: Vec<(u64, u64)> = Vec::new();
    let mut state = 12345_u64;
    for id in 0..3000_u64 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let size = 1 + (state >> 33) % (1 << (10 + (state >> 60)));
        lines.push(format!("a,{id},{size},{},0", id % 3));
        live.push((id, size));
        if live.len() > 200 {
            let (freed, _) = live.swap_remove((state >> 20) as usize % live.len());
            lines.push(format!("f,{freed},,{},0", freed % 3));
        }
    }
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let trace = trace(&lines);
    let mut seen = Overlap::default();
    model::replay(&trace, PyTorch::unlimited(), &mut seen);
    let mut spans: Vec<_> = live
        .iter()
        .map(|&(id, size)| {
            let (block, offset) = seen.places[id as usize];
            assert!(offset + size <= seen.blocks[block as usize]);
            (block, offset, offset + size)
        })
        .collect();
    spans.sort_unstable();
    for pair in spans.windows(2) {
        assert!(pair[0].0 != pair[1].0 || pair[0].2 <= pair[1].1, "{pair:?} overlap");
    }
}
