//! Records of a trace from what a manager tells.

use crate::binary::{Record, Writer};
use crate::event::{Alignment, Backing, HeapId, Region, Residence, Rung, StreamId};
use crate::label::{LabelId, tag_text};
use omniheap_core as core;
use omniheap_core::{AllocationId, Event, Reason, Request, Tag, TimelineId};
use std::collections::HashMap;
use std::io::Write;

/// Names of a manager's things in the trace.
#[derive(Debug, Default)]
pub(super) struct Translator {
    /// Numbers of lanes, over all managers.
    lanes: HashMap<(u32, u32), u32>,
    /// The lane that was looked up last: mostly the next one too.
    last: Option<((u32, u32), u32)>,
    /// Labels of reasons.
    reasons: Vec<(Reason, LabelId)>,
    /// Labels of tags.
    tags: HashMap<Tag, LabelId>,
}

impl Translator {
    /// Records an event.
    pub(super) fn record<W: Write>(
        &mut self,
        writer: &mut Writer<W>,
        now_us: u64,
        event: &Event<'_>,
    ) {
        let record = match *event {
            Event::Allocate { id, request, placement, block, offset } => {
                let id = self.id(id);
                let reason = placement.map(|placement| self.reason(writer, placement.reason));
                let (size, stream) = (request.layout.size, stream(request.timeline));
                let align = Alignment::new(request.layout.align.get()).unwrap_or_default();
                let (label, block) = (self.label(writer, request), block.0);
                let made = Record::AllocateAt { id, size, stream, align, label, block, offset };
                let (Some(reason), Some(placement)) = (reason, placement) else {
                    return writer.record(now_us, &made);
                };
                writer.record(now_us, &made);
                Record::BlockOffset { id, region: region(placement.region), reason }
            }
            Event::FreeRequested { id, timeline } => {
                Record::FreeRequested { id: self.id(id), stream: stream(timeline) }
            }
            Event::Free { id, timeline } => {
                Record::FreeCompleted { id: self.id(id), stream: stream(timeline) }
            }
            Event::Use { id, timeline } => {
                Record::Use { id: self.id(id), stream: stream(Some(timeline)) }
            }
            Event::Name { id, name } => {
                Record::Name { id: self.id(id), label: writer.label(LabelId::NONE, name) }
            }
            Event::Move { id, block, offset } => {
                Record::Move { id: self.id(id), block: block.0, offset }
            }
            ref other => match of_device(other) {
                Some(record) => record,
                None => return,
            },
        };
        writer.record(now_us, &record);
    }

    fn reason<W: Write>(&mut self, writer: &mut Writer<W>, reason: Reason) -> LabelId {
        if let Some(&(_, label)) = self.reasons.iter().find(|(known, _)| *known == reason) {
            return label;
        }
        let label = writer.label(LabelId::NONE, &reason.to_string());
        self.reasons.push((reason, label));
        label
    }

    /// Returns a request's tag, and its name below that.
    fn label<W: Write>(&mut self, writer: &mut Writer<W>, request: &Request<'_>) -> LabelId {
        let tag = request.tag.map_or(LabelId::NONE, |tag| {
            let new = || writer.label(LabelId::NONE, &tag_text(tag));
            *self.tags.entry(tag).or_insert_with(new)
        });
        request.name.map_or(tag, |name| writer.label(tag, name))
    }

    /// Returns a number that no other live allocation has: its lane's, and its slot's there.
    fn id(&mut self, id: AllocationId) -> u64 {
        let key = (id.manager(), id.lane());
        let lane = match self.last {
            Some((known, lane)) if known == key => lane,
            _ => self.lane(key),
        };
        (u64::from(lane) << 32) | u64::from(id.slot())
    }

    fn lane(&mut self, key: (u32, u32)) -> u32 {
        let next = u32::try_from(self.lanes.len()).unwrap_or(u32::MAX);
        let lane = *self.lanes.entry(key).or_insert(next);
        self.last = Some((key, lane));
        lane
    }
}

/// Returns the record of what the device gave or took, or of a rung.
fn of_device(event: &Event<'_>) -> Option<Record> {
    Some(match *event {
        Event::TakeBlock { block, size, heap, backing, .. } => {
            let backing = match backing {
                core::Backing::Memory => Backing::Memory,
                core::Backing::Pages => Backing::Pages,
            };
            Record::BlockAllocate { block: block.0, size, heap: HeapId(heap.0), backing }
        }
        Event::ReturnBlock { block } => Record::BlockFree { block: block.0 },
        Event::TakePages { heap, bytes } => Record::PagesTake { bytes, heap: HeapId(heap.0) },
        Event::ReturnPages { heap, bytes } => Record::PagesReturn { bytes, heap: HeapId(heap.0) },
        Event::TakeHostPages { heap, bytes } => {
            Record::HostPagesTake { bytes, heap: HeapId(heap.0) }
        }
        Event::ReturnHostPages { heap, bytes } => {
            Record::HostPagesReturn { bytes, heap: HeapId(heap.0) }
        }
        Event::Sleep { block, store } => Record::Reside { block: block.0, residence: kept(store) },
        Event::Wake { block } => Record::Reside { block: block.0, residence: Residence::Device },
        Event::Climb { rung, size, timeline } => {
            Record::OutOfMemory { size, stream: stream(timeline), rung: climbed(rung) }
        }
        Event::Fail { size, timeline } => {
            Record::OutOfMemory { size, stream: stream(timeline), rung: Rung::Failed }
        }
        _ => return None,
    })
}

/// 0 is the host's order; timelines follow. More than 65,534 of them share the last number.
fn stream(timeline: Option<TimelineId>) -> StreamId {
    let number = timeline.map_or(0, |timeline| timeline.0.saturating_add(1));
    StreamId(u16::try_from(number).unwrap_or(u16::MAX))
}

const fn kept(store: core::StoreKind) -> Residence {
    match store {
        core::StoreKind::Host => Residence::Host,
        core::StoreKind::File => Residence::File,
        core::StoreKind::Nothing => Residence::Nothing,
    }
}

const fn climbed(rung: core::Rung) -> Rung {
    match rung {
        core::Rung::Retire => Rung::Retire,
        core::Rung::Lend => Rung::Lend,
        core::Rung::Order => Rung::Order,
        core::Rung::Driver => Rung::Driver,
        core::Rung::Trim => Rung::Trim,
        core::Rung::Wait => Rung::Wait,
        core::Rung::Pressure => Rung::Pressure,
        core::Rung::Defragment => Rung::Defragment,
        core::Rung::NextHeap => Rung::NextHeap,
        core::Rung::Spill => Rung::Spill,
    }
}

const fn region(region: core::Region) -> Region {
    match region {
        core::Region::Constant => Region::Constant,
        core::Region::Shared => Region::Shared,
        core::Region::Staging => Region::Staging,
        core::Region::Unified => Region::Unified,
        _ => Region::Device,
    }
}
