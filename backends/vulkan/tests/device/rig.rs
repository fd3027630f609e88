//! Opens devices for cases and listens to the validation layer.
use core::{cell::RefCell, panic::AssertUnwindSafe};
use libtest_mimic::{Failed, Trial};
use omniheap_core::{Backend, BlockOffset, HeapId, Result, TimelineId, Transfer, Use};
use omniheap_vulkan::{Block, Clocks, Options, Paging, Validation, Vulkan, Which};
use std::panic::catch_unwind;

/// One promise.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Returns whether the device can run the case.
    pub(crate) needs: fn(&Vulkan) -> bool,
    pub(crate) check: fn(&Rig),
}

/// Lists cases as `name: needs;`.
#[macro_export]
macro_rules! cases {
    ($($name:ident if $needs:expr;)*) => {
        pub(crate) const CASES: &[$crate::rig::Case] = &[$(
            $crate::rig::Case { name: stringify!($name), needs: $needs, check: $name },
        )*];
    };
}

/// Options that a case opens its devices with.
pub(crate) struct Rig {
    pub(crate) options: Options,
    messages: RefCell<Vec<omniheap_vulkan::Messages>>,
}

impl Rig {
    /// Returns a fresh device.
    pub(crate) fn open(&self) -> Vulkan {
        self.open_with(self.options)
    }

    pub(crate) fn open_with(&self, options: Options) -> Vulkan {
        let vulkan = Vulkan::open_with(options).expect("the device opened when it was listed");
        self.messages.borrow_mut().extend(vulkan.messages().cloned());
        vulkan
    }
}

impl Rig {
    /// Forgets what the layer has said: a case that has it judge wrong calls too looks at its words by itself.
    pub(crate) fn forgive(&self) {
        self.messages.borrow_mut().clear();
    }
}

/// Returns whether `OMNIHEAP_REQUIRE` lists `word`.
pub(crate) fn required(word: &str) -> bool {
    let list = std::env::var("OMNIHEAP_REQUIRE").unwrap_or_default();
    list.split(',').any(|entry| entry.trim() == word)
}

/// Returns whether the validation layer was active.
pub(crate) fn watched() -> Trial {
    let found = Vulkan::open_with(Options::default().validation(Validation::On)).is_ok();
    let answer = move || if found { Ok(()) } else { Err("no validation layer here".into()) };
    Trial::test("the_validation_layer_listens", answer)
        .with_ignored_flag(!found && !required("validation"))
}

/// Returns every case on one device, with each kind of clock.
pub(crate) fn trials(index: usize, name: &str, cases: &[Case]) -> Vec<Trial> {
    let base = Options::default()
        .device(Which::Index(index))
        .validation(Validation::IfPresent)
        .staging(256 << 10);
    let mut base = base;
    let mut list = Vec::new();
    for (label, clocks) in [("semaphores", Clocks::Semaphores), ("fences", Clocks::Fences)] {
        let Ok(probe) = Vulkan::open_with(base.clocks(clocks).validation(Validation::Off)) else {
            return vec![Trial::test(format!("[{name}/{index}] opens"), || Err("refused".into()))];
        };
        // A device without memory of its own alone would otherwise never be asked for pages.
        if probe.as_remap().is_none() {
            base = base.paging(Paging::EveryHeap);
        }
        let probe = Vulkan::open_with(base.clocks(clocks)).expect("it opened just before");
        for case in cases.iter().copied() {
            let options = base.clocks(clocks);
            let trial = Trial::test(format!("[{name}/{index}/{label}] {}", case.name), move || {
                run(case, options)
            });
            list.push(trial.with_ignored_flag(!(case.needs)(&probe)));
        }
    }
    list
}

fn run(case: Case, options: Options) -> core::result::Result<(), Failed> {
    let rig = Rig { options, messages: RefCell::default() };
    let outcome = catch_unwind(AssertUnwindSafe(|| (case.check)(&rig)));
    let texts: Vec<String> = rig.messages.borrow().iter().flat_map(|m| m.texts()).collect();
    match outcome {
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            Err(format!("{}\n{}", text.unwrap_or_default(), texts.join("\n")).into())
        }
        Ok(()) if texts.is_empty() => Ok(()),
        Ok(()) => Err(format!("{} validation messages:\n{}", texts.len(), texts.join("\n")).into()),
    }
}

pub(crate) const MAIN: TimelineId = TimelineId::MAIN;

pub(crate) fn at(block: &Block, offset: u64) -> BlockOffset<'_, Block> {
    BlockOffset { block, offset }
}

/// Returns the bytes that differ from place to place and from seed to seed.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| next()).collect();
    bytes.truncate(len);
    bytes
}

pub(crate) fn transfer(vulkan: &Vulkan) -> &dyn Transfer<Block = Block> {
    vulkan.as_transfer().expect("this backend always has it")
}

pub(crate) fn read(vulkan: &Vulkan, block: &Block, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    transfer(vulkan).read(MAIN, at(block, offset), &mut bytes).expect("a range inside the block");
    bytes
}

pub(crate) fn write(vulkan: &Vulkan, block: &Block, offset: u64, bytes: &[u8]) {
    transfer(vulkan).write(MAIN, at(block, offset), bytes).expect("a range inside the block");
}

/// Returns the heaps that a policy may choose.
pub(crate) fn normal(vulkan: &Vulkan) -> Vec<HeapId> {
    let heaps = vulkan.caps().heap_ids();
    heaps.filter(|(_, heap)| heap.use_when == Use::Normal).map(|(id, _)| id).collect()
}

pub(crate) fn first(vulkan: &Vulkan) -> HeapId {
    normal(vulkan)[0]
}

/// Frees a block that nothing uses any more.
#[expect(unsafe_code, reason = "Backend::free is unsafe")]
pub(crate) fn free(vulkan: &Vulkan, block: Block) -> Result<()> {
    vulkan.wait_idle()?;
    // SAFETY: the device is idle.
    unsafe { vulkan.free(block) }
}
