//! Reports as JSON, in the schema of VMA's own, so that its tools draw them.
#![expect(unsafe_code, reason = "hands out C strings")]
use crate::abi::{VmaAllocator, VmaBudget, VmaDetailedStatistics};
use crate::allocator::{Allocator, on};
use crate::args::put;
use crate::call::{Refused, run};
use crate::memory::{About, Memory};
use crate::slots::Slot;
use crate::stats::{BlockMap, Blocks, Home, sum};
use ash::vk;
use core::ffi::c_char;
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;
use omniheap_seam::lock;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex};

/// Level of detail of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detail {
    Sums,
    /// Sums, and every block with its allocations.
    Blocks,
}

/// Texts that programs hold, by address.
static HELD: Mutex<BTreeMap<usize, CString>> = Mutex::new(BTreeMap::new());

/// Keeps a text for the program, and returns its address.
pub(crate) fn hand_out(text: &str) -> *mut c_char {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    let address = text.as_ptr().cast_mut();
    lock(&HELD).insert(address.addr(), text);
    address
}

/// Frees a text that [`hand_out`] gave. Null does nothing.
pub(crate) fn take_back(text: *mut c_char) -> Result<(), Refused> {
    if text.is_null() || lock(&HELD).remove(&text.addr()).is_some() {
        return Ok(());
    }
    Err(Refused::invalid("the text was freed before, or is not the library's"))
}

const PROPERTIES: [(u32, &str); 8] = [
    (1, "DEVICE_LOCAL"),
    (2, "HOST_VISIBLE"),
    (4, "HOST_COHERENT"),
    (8, "HOST_CACHED"),
    (16, "LAZILY_ALLOCATED"),
    (32, "PROTECTED"),
    (64, "DEVICE_COHERENT_AMD"),
    (128, "DEVICE_UNCACHED_AMD"),
];
const OF_HEAPS: [(u32, &str); 2] = [(1, "DEVICE_LOCAL"), (2, "MULTI_INSTANCE")];

/// Returns the names of flags, and a number for those without one.
fn flags(bits: u32, names: &[(u32, &str)]) -> Value {
    let known = names.iter().filter(|(bit, _)| bits & bit != 0);
    let mut shown: Vec<Value> = known.map(|(_, name)| json!(name)).collect();
    let rest = names.iter().fold(bits, |rest, (bit, _)| rest & !bit);
    if rest != 0 {
        shown.push(json!(rest));
    }
    Value::Array(shown)
}

/// Returns sums as VMA shows them: extremes only if there are two or more sizes.
pub(crate) fn statistics(of: &VmaDetailedStatistics) -> Value {
    let mut shown = json!({
        "BlockCount": of.statistics.block_count,
        "BlockBytes": of.statistics.block_bytes,
        "AllocationCount": of.statistics.allocation_count,
        "AllocationBytes": of.statistics.allocation_bytes,
        "UnusedRangeCount": of.unused_range_count,
    });
    if of.statistics.allocation_count > 1 {
        shown["AllocationSizeMin"] = json!(of.allocation_size_min);
        shown["AllocationSizeMax"] = json!(of.allocation_size_max);
    }
    if of.unused_range_count > 1 {
        shown["UnusedRangeSizeMin"] = json!(of.unused_range_size_min);
        shown["UnusedRangeSizeMax"] = json!(of.unused_range_size_max);
    }
    shown
}

fn allocation(slot: &Slot<Memory>) -> Value {
    let (facts, about) = (&slot.facts, About::of(&slot.facts));
    let (size, usage) = (facts.size.load(Relaxed), facts.usage.load(Relaxed));
    let mut shown = json!({ "Type": about.content(), "Size": size, "Usage": usage });
    let user_data = facts.user_data.load(Relaxed);
    if !user_data.is_null() {
        shown["CustomData"] = json!(format!("{:#X}", user_data.addr()));
    }
    if let Some(name) = slot.name_text() {
        shown["Name"] = json!(name);
    }
    shown
}

fn block(block: &BlockMap<'_>) -> Value {
    let (mut pieces, mut unused, mut holes, mut maps) = (Vec::new(), 0, 0, 0);
    block.each(|offset, size, slot| match slot {
        Some(slot) => {
            let mut shown = allocation(slot);
            shown["Offset"] = json!(offset);
            maps += slot.facts.maps.load(Relaxed) + u32::from(About::of(&slot.facts).is_mapped());
            pieces.push(shown);
        }
        None => {
            (unused, holes) = (unused + size, holes + 1);
            pieces.push(json!({ "Offset": offset, "Type": "FREE", "Size": size }));
        }
    });
    json!({
        "MapRefCount": maps,
        "TotalBytes": block.size,
        "UnusedBytes": unused,
        "Allocations": block.live.len(),
        "UnusedRanges": holes,
        "Suballocations": pieces,
    })
}

/// Returns the blocks of a pool, and its allocations with memory of their own.
fn home(preferred: u64, blocks: &[BlockMap<'_>]) -> Value {
    let shared = blocks.iter().filter(|block| !block.is_alone).enumerate();
    let shared: Map<_, _> = shared.map(|(at, one)| (at.to_string(), block(one))).collect();
    let alone = blocks.iter().filter(|block| block.is_alone).flat_map(|block| &block.live);
    let alone: Vec<_> = alone.map(|slot| allocation(slot)).collect();
    json!({ "PreferredBlockSize": preferred, "Blocks": shared, "DedicatedAllocations": alone })
}

impl Allocator {
    fn general(&self) -> Value {
        // SAFETY: the handle is the program's, which promised that it outlives the allocator.
        let about = unsafe {
            self.vulkan.ash_instance().get_physical_device_properties(self.vulkan.physical_device())
        };
        let version = about.api_version;
        let (major, minor) = (vk::api_version_major(version), vk::api_version_minor(version));
        let name = about.device_name_as_c_str().map(|name| name.to_string_lossy().into_owned());
        json!({
            "API": "Vulkan",
            "apiVersion": format!("{major}.{minor}.{}", vk::api_version_patch(version)),
            "GPU": name.unwrap_or_default(),
            "deviceType": about.device_type.as_raw(),
            "maxMemoryAllocationCount": about.limits.max_memory_allocation_count,
            "bufferImageGranularity": about.limits.buffer_image_granularity,
            "nonCoherentAtomSize": about.limits.non_coherent_atom_size,
            "memoryHeapCount": self.memory.memory_heap_count,
            "memoryTypeCount": self.memory.memory_type_count,
        })
    }

    fn heap_shown(&self, heap: usize, budget: &VmaBudget, blocks: &Blocks<'_>) -> Value {
        let mut all = sum(&[]);
        let mut types = Map::new();
        for memory_type in (0..self.type_count()).filter(|at| self.heap_of(*at) == heap) {
            let mut of_type = sum(&[]);
            let own = blocks.iter().filter(|((of, _), _)| *of == memory_type);
            own.for_each(|(_, blocks)| of_type.add(&sum(blocks)));
            all.add(&of_type);
            let shown = json!({
                "Flags": flags(self.type_flags(memory_type).as_raw(), &PROPERTIES),
                "Stats": statistics(&of_type),
            });
            types.insert(format!("Type {memory_type}"), shown);
        }
        let about = self.memory.memory_heaps[heap];
        json!({
            "Flags": flags(about.flags.as_raw(), &OF_HEAPS),
            "Size": about.size,
            "Budget": { "BudgetBytes": budget.budget, "UsageBytes": budget.usage },
            "Stats": statistics(&all),
            "MemoryPools": types,
        })
    }

    fn default_pools(&self, blocks: &Blocks<'_>) -> Value {
        let usable = (0..self.type_count()).filter(|at| self.types.usable & (1 << at) != 0);
        let shown = usable.map(|at| {
            let own = blocks.get(&(at, 0)).map(Vec::as_slice).unwrap_or_default();
            (format!("Type {at}"), home(self.preferred_block(at), own))
        });
        Value::Object(shown.collect())
    }

    fn custom_pools(&self, blocks: &Blocks<'_>) -> Value {
        let mut by_type: BTreeMap<u32, Vec<Value>> = BTreeMap::new();
        for slot in self.pools.iter() {
            let number = slot.handle().number();
            // Allocations from the pool wait for its slot, so that is not held meanwhile.
            let Some(pool) = slot.with(|pool| Arc::clone(pool)) else { continue };
            let key: Home = (pool.memory_type, number);
            let own = blocks.get(&key).map(Vec::as_slice).unwrap_or_default();
            let preferred = match pool.block_size {
                0 => self.preferred_block(pool.memory_type),
                size => size,
            };
            let mut shown = home(preferred, own);
            let others = by_type.entry(pool.memory_type).or_default();
            let at = others.len();
            let name =
                pool.name_text().map_or_else(|| at.to_string(), |name| format!("{at} - {name}"));
            shown["Name"] = json!(name);
            others.push(shown);
        }
        let shown = by_type.into_iter().map(|(at, pools)| (format!("Type {at}"), json!(pools)));
        Value::Object(shown.collect())
    }

    fn report(&self, detail: Detail) -> String {
        let blocks = self.blocks();
        let mut total = sum(&[]);
        blocks.values().for_each(|blocks| total.add(&sum(blocks)));
        let heaps = self.budgets().into_iter().enumerate();
        let heaps =
            heaps.map(|(at, budget)| (format!("Heap {at}"), self.heap_shown(at, &budget, &blocks)));
        let mut shown = json!({
            "General": self.general(),
            "Total": statistics(&total),
            "MemoryInfo": Value::Object(heaps.collect()),
        });
        if detail == Detail::Blocks {
            shown["DefaultPools"] = self.default_pools(&blocks);
            shown["CustomPools"] = self.custom_pools(&blocks);
            shown["CurrentFrame"] = json!(self.frame());
        }
        shown.to_string()
    }
}

/// Writes a report; with `detailed` it lists every block.
///
/// # Safety
///
/// `text` is null or may be written; no other thread destroys the allocator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaBuildStatsString(
    allocator: VmaAllocator,
    text: *mut *mut c_char,
    detailed: vk::Bool32,
) {
    let work = |of: &Allocator| {
        // SAFETY: the caller's promise.
        unsafe { put(text, ptr::null_mut(), "ppStatsString") }?;
        let detail = if detailed == vk::FALSE { Detail::Sums } else { Detail::Blocks };
        let shown = hand_out(&of.report(detail));
        // SAFETY: as above.
        unsafe { put(text, shown, "ppStatsString") }
    };
    // SAFETY: as above.
    unsafe { on("vmaBuildStatsString", allocator, work) };
}

/// Frees a report.
#[unsafe(no_mangle)]
pub extern "C" fn vmaFreeStatsString(_: VmaAllocator, text: *mut c_char) {
    run("vmaFreeStatsString", || take_back(text));
}
