//! The words of a request, one enum each.
use crate::profile::Probe;
use omniheap_seam::HeapKind;

/// What a policy chooses among.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Region {
    /// Device memory: the default home.
    Device,
    /// Read-only, broadcast-cached, small.
    Constant,
    /// On-chip memory of one group; a layout of a launch, not an allocation.
    Shared,
    /// Host memory that the device reaches.
    Staging,
    /// Reached fast by both sides.
    Unified,
}

/// Who writes the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Writer {
    /// Kernels.
    #[default]
    Device,
    /// The host, once, before kernels read.
    HostOnce,
    /// The host, again for every frame or step.
    HostPerFrame,
}

/// Who reads the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Access {
    /// Kernels.
    #[default]
    Device,
    /// The host, after the device wrote them.
    Host,
    /// Both, all the time.
    Both,
}

/// How kernels read the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// Neighbouring lanes read neighbouring addresses.
    #[default]
    Coalesced,
    /// Every lane reads the same address, and the compiler knows which: a loop over a whole table.
    Broadcast,
    /// Every lane reads the same address, which the kernel computes.
    Uniform,
    /// Every lane reads a number where it likes, from numbers side by side.
    Gathered,
    /// Every lane reads a number or two of a record, 16 bytes or so, where it likes.
    Fields,
    /// Every lane reads a whole record, 16 bytes or so, where it likes.
    Records,
    /// A group reads the same tile many times.
    Tiled,
}

/// What a kernel does beside reading the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Work {
    /// Nobody says, or much.
    #[default]
    Any,
    /// Little: at most a multiplication and an addition for each number that it reads here, addresses aside, and several
    /// numbers from here for each one of other memory.
    Light,
}

/// Whether a read waits for the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dependence {
    /// Nobody says.
    #[default]
    Any,
    /// No: every address is known without what was read before.
    Independent,
    /// Yes: what is read says where to read next.
    Chained,
}

/// How long the bytes live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lifetime {
    /// Until freed, and nobody knows when.
    #[default]
    Persistent,
    /// One frame or step.
    Frame,
    /// One kernel.
    Kernel,
}

/// Whether an allocation may share its block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// With other allocations.
    #[default]
    Shared,
    /// With nobody: its own driver object, at offset zero.
    Dedicated,
}

/// Whether defragmentation may move an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mobility {
    /// While nobody holds its binding.
    #[default]
    Movable,
    /// Only in passes that ask its owner, who has native objects bound to its place.
    OnConsent,
    /// Never: its address stays as long as it lives.
    Pinned,
}

/// What an allocation holds before anyone writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Contents {
    /// Whatever its domain left there.
    #[default]
    Any,
    /// Zeros, padding included.
    Zero,
}

/// Whether an allocation's bytes may outlive it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Privacy {
    /// Within its domain.
    #[default]
    Open,
    /// Never: they are zeroed when it is freed, and not copied about before.
    Secret,
}

/// Whether the driver may be asked for more memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Driver {
    /// When nothing that is held fits.
    #[default]
    Allowed,
    /// Never: only what is held already.
    Forbidden,
}

/// Whether another region may serve where the best one is missing or too small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Substitution {
    /// Yes, and the placement says so.
    #[default]
    Allowed,
    /// No: the request fails instead.
    Forbidden,
}

/// Whether host and device see each other's writes without a flush or an invalidation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Coherence {
    /// As the heap has it; `flush` and `invalidate` are called where it needs them.
    #[default]
    Any,
    /// Always: heaps that need a flush are left out.
    Needed,
}

/// Whether host memory may serve where every heap that the policy permits is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Spill {
    /// No: the request fails instead.
    #[default]
    Forbidden,
    /// Yes, as the last resort, and the placement says so.
    Allowed,
}

/// A value that files, command lines and reports write as one word.
///
/// ```
/// use omniheap_placement::{Word, Writer};
/// assert_eq!(Writer::from_word("host-once"), Some(Writer::HostOnce));
/// assert_eq!(Writer::HostPerFrame.word(), "host-per-frame");
/// ```
pub trait Word: Copy + PartialEq + Send + Sync + 'static {
    /// Every value with its word.
    const WORDS: &'static [(&'static str, Self)];

    /// The value that a word stands for.
    #[must_use]
    fn from_word(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(known, _)| *known == word).map(|(_, value)| *value)
    }

    /// The word for this value.
    #[must_use]
    fn word(self) -> &'static str {
        let found = Self::WORDS.iter().find(|(_, value)| *value == self);
        found.map_or("unknown", |(word, _)| *word)
    }
}

/// Gives the words of a type, all of its values.
macro_rules! words {
    ($type:ident: $($word:literal => $value:ident),+) => {
        impl Word for $type {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$value)),+];
        }
    };
}

words!(Region: "device" => Device, "constant" => Constant, "shared" => Shared, "staging" => Staging, "unified" => Unified);
words!(HeapKind: "device" => Device, "constant" => Constant, "staging" => Staging, "unified" => Unified);
words!(Writer: "device" => Device, "host-once" => HostOnce, "host-per-frame" => HostPerFrame);
words!(Access: "device" => Device, "host" => Host, "both" => Both);
words!(Pattern: "coalesced" => Coalesced, "broadcast" => Broadcast, "uniform" => Uniform, "gathered" => Gathered, "fields" => Fields, "records" => Records, "tiled" => Tiled);
words!(Work: "any" => Any, "light" => Light);
words!(Dependence: "any" => Any, "independent" => Independent, "chained" => Chained);
words!(Probe: "whole" => Whole, "unrolled" => Unrolled, "busy" => Busy, "walk" => Walk, "lanes" => Lanes, "codes" => Codes, "hops" => Hops, "records" => Records);
words!(Lifetime: "persistent" => Persistent, "frame" => Frame, "kernel" => Kernel);
words!(Coherence: "any" => Any, "needed" => Needed);
words!(Substitution: "allowed" => Allowed, "forbidden" => Forbidden);
words!(Spill: "forbidden" => Forbidden, "allowed" => Allowed);
words!(Privacy: "open" => Open, "secret" => Secret);
