//! VMA's JSON dump (`vmaBuildStatsString`, or that of a virtual block, with the detailed map): the blocks and what
//! lies in them at one moment.
//!
//! As a trace it is one instant: every block is taken from the driver, then every allocation is made and bound.

use crate::builder::{Builder, Locate};
use crate::error::{Error, ErrorKind, Position};
use crate::event::{Alignment, Backing, HeapId, StreamId};
use crate::input::Input;
use crate::label::LabelId;
use crate::limits::Limits;
use crate::trace::{Source, Trace};
use core::fmt;
use core::marker::PhantomData;
use omniheap_pickle::tight;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use std::collections::HashMap;
use std::io::Read;

/// Reads a dump from `source`, plain or gzip, within `limits`.
///
/// # Errors
/// The line at which the JSON breaks, or the block whose content contradicts itself.
pub fn read(source: impl Read, limits: &Limits) -> Result<Trace, Error> {
    read_input(&mut Input::new(source, limits)?, limits)
}

pub(crate) fn read_input(input: &mut Input<'_>, limits: &Limits) -> Result<Trace, Error> {
    let dump: Dump = serde_json::from_reader(std::io::BufReader::new(input)).map_err(json_error)?;
    convert(&dump, limits).map_err(|kind| Error::new(Position::Input, kind))
}

fn json_error(error: serde_json::Error) -> Error {
    use serde_json::error::Category;
    let position = Position::Line(error.line() as u64);
    let kind = match error.classify() {
        Category::Eof => ErrorKind::Truncated,
        // Errors of the input itself come through the parser as a failed read.
        Category::Io => std::io::Error::from(error).downcast().unwrap_or_else(ErrorKind::Io),
        Category::Syntax => ErrorKind::Malformed("JSON"),
        Category::Data => ErrorKind::Malformed("VMA dump"),
    };
    Error::new(position, kind)
}

/// An object whose keys are names, in the order of the file.
#[derive(Debug)]
struct Named<T>(Vec<(String, T)>);

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Named<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Named(entries))
            }
        }
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Dump {
    #[serde(default)]
    memory_info: Named<Heap>,
    default_pools: Option<Named<Pool>>,
    /// In place of pools, for a virtual block.
    details: Option<Block>,
    #[serde(default)]
    custom_pools: Named<Vec<Pool>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Heap {
    #[serde(default)]
    memory_pools: Named<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Pool {
    name: Option<Box<str>>,
    #[serde(default)]
    blocks: Named<Block>,
    #[serde(default)]
    dedicated_allocations: Spans,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Block {
    total_bytes: u64,
    #[serde(default)]
    suballocations: Spans,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Span {
    #[serde(default)]
    offset: u64,
    size: u64,
    #[serde(rename = "Type", default)]
    kind: Kind,
    name: Option<Box<str>>,
}

/// A list of spans that takes little more than it needs.
#[derive(Default)]
struct Spans(Vec<Span>);

impl<'de> Deserialize<'de> for Spans {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items;
        impl<'de> Visitor<'de> for Items {
            type Value = Spans;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Spans, A::Error> {
                let mut spans = Vec::new();
                while let Some(span) = items.next_element()? {
                    tight::push(&mut spans, span);
                }
                Ok(Spans(spans))
            }
        }
        deserializer.deserialize_seq(Items)
    }
}

/// Content of a span, by VMA's names.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum Kind {
    Free,
    Buffer,
    ImageUnknown,
    ImageLinear,
    ImageOptimal,
    /// Unknown, or left out by a virtual block.
    #[default]
    #[serde(other)]
    Unknown,
}

impl Kind {
    const fn text(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Buffer => "buffer",
            Self::ImageUnknown => "image",
            Self::ImageLinear => "linear image",
            Self::ImageOptimal => "optimal image",
            Self::Unknown => "unknown",
        }
    }
}

fn convert(dump: &Dump, limits: &Limits) -> Result<Trace, ErrorKind> {
    if dump.default_pools.is_none() && dump.details.is_none() {
        return Err(ErrorKind::Malformed(
            "VMA dump: it has no detailed map; call vmaBuildStatsString with detailedMap = VK_TRUE",
        ));
    }
    let builder = Builder::new(Source::Vma, limits);
    let mut walk = Walk { builder, heaps: heaps_by_type(dump), blocks: 0, spans: 0 };
    if let Some(block) = &dump.details {
        walk.filled(block, HeapId(0), LabelId::NONE)?;
    }
    for (memory_type, pool) in dump.default_pools.iter().flat_map(|pools| &pools.0) {
        walk.pool(memory_type, pool)?;
    }
    for (memory_type, pools) in &dump.custom_pools.0 {
        for pool in pools {
            walk.pool(memory_type, pool)?;
        }
    }
    walk.builder.meta().title = "VMA dump".to_owned();
    Ok(walk.builder.finish())
}

struct Walk<'d> {
    builder: Builder,
    heaps: HashMap<&'d str, HeapId>,
    blocks: u64,
    spans: u64,
}

impl Walk<'_> {
    fn pool(&mut self, memory_type: &str, pool: &Pool) -> Result<(), ErrorKind> {
        let heap = self.heaps.get(memory_type).copied().unwrap_or_default();
        let mut label = self.builder.label(LabelId::NONE, memory_type)?;
        if let Some(name) = pool.name.as_deref().filter(|name| !name.is_empty()) {
            label = self.builder.label(label, name)?;
        }
        for (_, block) in &pool.blocks.0 {
            self.filled(block, heap, label)?;
        }
        for span in &pool.dedicated_allocations.0 {
            let number = self.block(span.size, heap)?;
            self.span(span, 0, number, label)?;
        }
        Ok(())
    }

    /// Reads a block and everything in it.
    fn filled(&mut self, block: &Block, heap: HeapId, label: LabelId) -> Result<(), ErrorKind> {
        let number = self.block(block.total_bytes, heap)?;
        let mut end = 0;
        for span in &block.suballocations.0 {
            if span.offset < end {
                return Err(ErrorKind::Malformed(
                    "VMA dump: suballocations overlap or are out of order",
                ));
            }
            end = span
                .offset
                .checked_add(span.size)
                .ok_or(ErrorKind::TooLarge(crate::Field::Size))?;
            if span.kind != Kind::Free {
                self.span(span, span.offset, number, label)?;
            }
        }
        Ok(())
    }

    fn block(&mut self, size: u64, heap: HeapId) -> Result<u64, ErrorKind> {
        let number = self.blocks;
        self.blocks += 1;
        self.builder.block_allocate(number, size, heap, Backing::Memory)?;
        Ok(number)
    }

    fn span(
        &mut self,
        span: &Span,
        offset: u64,
        block: u64,
        pool: LabelId,
    ) -> Result<(), ErrorKind> {
        let number = self.spans;
        self.spans += 1;
        let id = self.builder.allocate(number, span.size, StreamId(0), Alignment::UNKNOWN)?;
        let mut label = self.builder.label(pool, span.kind.text())?;
        if let Some(name) = span.name.as_deref().filter(|name| !name.is_empty()) {
            label = self.builder.label(label, name)?;
        }
        self.builder.set_label(id, label)?;
        self.builder.locate(number, block, offset, Locate::Bind)
    }
}

/// Memory types to the heap that lists them; heaps are numbered in the order of the file.
fn heaps_by_type(dump: &Dump) -> HashMap<&str, HeapId> {
    let mut heaps = HashMap::new();
    for (number, (_, heap)) in dump.memory_info.0.iter().enumerate() {
        let heap_id = HeapId(u8::try_from(number).unwrap_or(u8::MAX));
        heaps.extend(heap.memory_pools.0.iter().map(|(name, _)| (name.as_str(), heap_id)));
    }
    heaps
}
