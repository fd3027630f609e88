//! The memory of a device as PyTorch's snapshots show it: segments, and the blocks in them.
//!
//! A segment is memory that is mapped side by side. A report says which offsets of a manager's blocks are live, free or
//! unmapped; where a block begins is learned from the addresses of what lives in it.
use crate::graph::PoolId;
use crate::meter::UNIT;
use crate::streams::Streams;
use core::cmp::Reverse;
use omniheap::{
    Binding,
    report::{AllocationId, BlockNumber, BlockReport, SpanState},
    seam::Span,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};

/// Memory that a program holds at an address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tenant {
    /// Bytes that were asked for.
    pub(crate) size: u64,
    /// Bytes that it has, where a capture keeps it.
    pub(crate) granted: u64,
    pub(crate) stream: usize,
    /// Its allocation, unless a capture keeps the memory: no later one has the same.
    pub(crate) id: Option<AllocationId>,
}

/// Facts about a device's addresses.
#[derive(Default)]
pub(crate) struct Addresses {
    /// Memory that programs hold.
    pub(crate) tenants: BTreeMap<u64, Tenant>,
    /// Blocks that graph captures keep, by address.
    pub(crate) kept: HashMap<u64, PoolId>,
    /// Blocks that have something live at an offset, and how many bytes.
    blocks: HashMap<u64, Vec<(Extent, u64)>>,
}

/// The addresses of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Extent {
    pub(crate) base: u64,
    pub(crate) size: u64,
}

impl Addresses {
    /// Notes where an allocation lies.
    pub(crate) fn note<B: Streams>(&mut self, binding: &Binding<'_, B>, address: u64) {
        let span = binding.span();
        let extent = Extent { base: address - span.offset, size: B::extent(binding.block()) };
        self.blocks.entry(span.offset).or_default().push((extent, span.size));
    }

    /// Returns the start of a block: at the addresses where most of its live spans are known, by offset and best by
    /// size too, and of those at the block whose size is most like it. Others may allocate meanwhile, so not all of
    /// them may be known.
    fn base(&self, block: &BlockReport, taken: &HashMap<BlockNumber, u64>) -> Option<u64> {
        let mut votes: HashMap<Extent, usize> = HashMap::new();
        for live in block.live.iter().filter(|live| live.state != SpanState::Deferred) {
            for (extent, size) in self.blocks.get(&live.span.offset).into_iter().flatten() {
                let is_equal = size.next_multiple_of(UNIT) == live.span.size;
                *votes.entry(*extent).or_default() += if is_equal { 4 } else { 1 };
            }
        }
        let is_taken = |extent: &Extent| taken.values().any(|base| *base == extent.base);
        let free = votes.into_iter().filter(|(extent, _)| !is_taken(extent));
        let like = |extent: &Extent| Reverse(extent.size.abs_diff(block.size));
        free.max_by_key(|(extent, votes)| (*votes, like(extent))).map(|(extent, _)| extent.base)
    }
}

/// A piece of a block.
#[derive(Clone, Copy)]
struct Piece {
    offset: u64,
    size: u64,
    state: &'static str,
}

/// The segments of a device. `known` keeps where blocks begin, for times when nothing lives in them.
pub(crate) fn segments<'a>(
    blocks: impl Iterator<Item = &'a BlockReport>,
    addresses: &Addresses,
    known: &mut HashMap<BlockNumber, u64>,
) -> Vec<Value> {
    let mut all = Vec::new();
    let mut still = HashMap::new();
    for block in blocks {
        let Some(base) =
            addresses.base(block, &still).or_else(|| known.get(&block.number).copied())
        else {
            continue;
        };
        still.insert(block.number, base);
        let pieces = pieces(block);
        let side_by_side = |a: &Piece, b: &Piece| a.offset + a.size == b.offset;
        all.extend(pieces.chunk_by(side_by_side).map(|mapped| segment(base, mapped, addresses)));
    }
    *known = still;
    all
}

fn pieces(block: &BlockReport) -> Vec<Piece> {
    let live = block.live.iter().map(|live| {
        let is_waiting = live.state == SpanState::Deferred;
        let state = if is_waiting { "active_awaiting_free" } else { "active_allocated" };
        Piece { offset: live.span.offset, size: live.span.size, state }
    });
    let hole = |hole: &Span| Piece { offset: hole.offset, size: hole.size, state: "inactive" };
    let mut pieces: Vec<_> = live.chain(block.holes.iter().map(hole)).collect();
    pieces.sort_unstable_by_key(|piece| piece.offset);
    pieces
}

fn segment(base: u64, mapped: &[Piece], addresses: &Addresses) -> Value {
    let start = base + mapped.first().map_or(0, |piece| piece.offset);
    let blocks: Vec<Value> = mapped
        .iter()
        .flat_map(|piece| {
            let (address, end) = (base + piece.offset, base + piece.offset + piece.size);
            match addresses.kept.contains_key(&address) {
                true => divided(address, end, addresses),
                false => {
                    let tenant = addresses.tenants.get(&address).copied();
                    vec![shown(address, piece.size, piece.state, tenant)]
                }
            }
        })
        .collect();
    let sum = |key: &str, of: &dyn Fn(&str) -> bool| -> u64 {
        let counted = blocks.iter().filter(|block| block["state"].as_str().is_some_and(of));
        counted.filter_map(|block| block[key].as_u64()).sum()
    };
    let total = sum("size", &|_| true);
    let pool = addresses.kept.get(&start).copied().unwrap_or(PoolId::NONE);
    let stream = addresses.tenants.range(start..start + total).next();
    json!({
        "address": start,
        "total_size": total,
        "allocated_size": sum("size", &|state| state == "active_allocated"),
        "active_size": sum("size", &|state| state != "inactive"),
        "requested_size": sum("requested_size", &|state| state == "active_allocated"),
        "stream": stream.map_or(0, |(_, tenant)| tenant.stream),
        "segment_type": if total > LARGE { "large" } else { "small" },
        "segment_pool_id": [pool.captured, pool.named],
        "is_expandable": false,
        "blocks": blocks,
    })
}

/// From here on PyTorch calls a segment large.
const LARGE: u64 = 2 << 20;

/// The blocks of memory that a capture keeps and divides by itself.
fn divided(start: u64, end: u64, addresses: &Addresses) -> Vec<Value> {
    let (mut at, mut blocks) = (start, Vec::new());
    for (&address, tenant) in addresses.tenants.range(start..end) {
        if at < address {
            blocks.push(shown(at, address - at, "inactive", None));
        }
        let size = tenant.granted.min(end - address);
        blocks.push(shown(address, size, "active_allocated", Some(*tenant)));
        at = address + size;
    }
    if at < end {
        blocks.push(shown(at, end - at, "inactive", None));
    }
    blocks
}

fn shown(address: u64, size: u64, state: &str, tenant: Option<Tenant>) -> Value {
    let requested = tenant.map_or(0, |tenant| tenant.size);
    let mut block =
        json!({ "address": address, "size": size, "requested_size": requested, "state": state });
    if let Some(id) = tenant.and_then(|tenant| tenant.id) {
        block["allocation"] = format!("{id:?}").into();
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use omniheap::report::SpanReport;

    const MIB: u64 = 1 << 20;

    fn block(number: u64, size: u64, live: u64) -> BlockReport {
        let span = Span { offset: 0, size: live };
        let live = vec![SpanReport { span, name: None, tag: None, state: SpanState::Pinned }];
        BlockReport { number: BlockNumber(number), lane: 0, size, live, holes: Vec::new() }
    }

    fn addresses(blocks: &[(u64, u64, u64)]) -> Addresses {
        let known = |&(base, size, live): &(u64, u64, u64)| (Extent { base, size }, live);
        let blocks = HashMap::from([(0, blocks.iter().map(known).collect())]);
        Addresses { blocks, ..Addresses::default() }
    }

    #[test]
    fn blocks_are_told_apart_by_what_lives_in_them_and_by_their_size() {
        let none = HashMap::new();
        // All have something at the same offset: its size decides.
        let known: Vec<_> = (1..20).map(|n| (n << 30, 2 * MIB, n * 5000)).collect();
        let by_live = addresses(&known);
        for (base, size, live) in known {
            let shown = block(1, size, live.next_multiple_of(UNIT));
            assert_eq!(by_live.base(&shown, &none), Some(base));
        }
        // Its size is the same too: the block's decides.
        let by_size = addresses(&[(0x1000, 2 * MIB, 512), (0x9000, 64 * MIB, 512)]);
        assert_eq!(by_size.base(&block(1, 2 * MIB, 512), &none), Some(0x1000));
        assert_eq!(by_size.base(&block(2, 64 * MIB, 512), &none), Some(0x9000));
        // Blocks that are alike get different addresses.
        let alike = addresses(&[(0x1000, 2 * MIB, 512), (0x9000, 2 * MIB, 512)]);
        let first = alike.base(&block(1, 2 * MIB, 512), &none).expect("two are known");
        let taken = HashMap::from([(BlockNumber(1), first)]);
        let second = alike.base(&block(2, 2 * MIB, 512), &taken);
        assert_eq!(second, Some(0xa000 - first));
    }

    #[test]
    fn a_block_is_found_though_a_span_has_more_than_was_asked_for() {
        let known = addresses(&[(0x1000, 2 * MIB, 77)]);
        assert_eq!(known.base(&block(1, 2 * MIB, 4096), &HashMap::new()), Some(0x1000));
    }

    #[test]
    fn a_segment_is_what_is_mapped_side_by_side() {
        let mut block = block(1, 8 * MIB, 512);
        let other = Span { offset: 4096, size: 1024 };
        let waiting =
            SpanReport { span: other, state: SpanState::Deferred, ..block.live[0].clone() };
        block.live.push(waiting);
        block.holes.push(Span { offset: 512, size: 256 });
        let base = 0x10_0000;
        let tenant = Tenant { size: 500, granted: 500, stream: 3, id: None };
        let tenants = BTreeMap::from([(base, tenant)]);
        let addresses = Addresses { tenants, ..Addresses::default() };
        let mut known = HashMap::from([(BlockNumber(1), base), (BlockNumber(2), 7)]);
        let shown = segments([block].iter(), &addresses, &mut known);
        let sums = |segment: &Value| {
            ["address", "total_size", "allocated_size", "active_size", "requested_size", "stream"]
                .map(|key| segment[key].as_u64().expect("a number"))
        };
        let sums: Vec<_> = shown.iter().map(sums).collect();
        assert_eq!(sums, [[base, 768, 512, 512, 500, 3], [base + 4096, 1024, 0, 1024, 0, 0]]);
        let hole =
            json!({ "address": base + 512, "size": 256, "requested_size": 0, "state": "inactive" });
        assert_eq!(shown[0]["blocks"][1], hole);
        assert_eq!(shown[1]["blocks"][0]["state"], "active_awaiting_free");
        assert_eq!(shown[0]["segment_type"], "small");
        assert_eq!(
            known,
            HashMap::from([(BlockNumber(1), base)]),
            "blocks that are gone are forgotten"
        );
    }

    #[test]
    fn memory_that_a_capture_keeps_is_shown_as_the_capture_divides_it() {
        let base = 0x10_0000;
        let tenant = |size| Tenant { size, granted: 512, stream: 4, id: None };
        let tenants = BTreeMap::from([(base + 512, tenant(100)), (base + 2048, tenant(200))]);
        let kept = HashMap::from([(base, PoolId { captured: 5, named: 6 })]);
        let addresses = Addresses { tenants, kept, ..Addresses::default() };
        let mut known = HashMap::from([(BlockNumber(1), base)]);
        let shown = segments([block(1, 4 * MIB, 3 * MIB)].iter(), &addresses, &mut known);
        let blocks = shown[0]["blocks"].as_array().expect("a list");
        let shape = |block: &Value| (block["address"].as_u64(), block["size"].as_u64());
        let shapes: Vec<_> = blocks.iter().map(shape).collect();
        let expected = [(0, 512), (512, 512), (1024, 1024), (2048, 512), (2560, 3 * MIB - 2560)];
        assert_eq!(shapes, expected.map(|(offset, size)| (Some(base + offset), Some(size))));
        assert_eq!(shown[0]["segment_pool_id"], json!([5, 6]));
        assert_eq!((&shown[0]["segment_type"], &shown[0]["stream"]), (&"large".into(), &4.into()));
    }
}
