//! Hints of a request, one enum each.
use omniheap_seam::HeapKind;

/// A kind of memory that a policy chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Region {
    /// Device memory, the default.
    Device,
    /// Constant memory: small, read-only for kernels, fast for broadcast reads.
    Constant,
    /// On-chip memory of a workgroup. It belongs to a launch; nothing is allocated there.
    Shared,
    /// Host memory that the device can access.
    Staging,
    /// Memory that host and device both access fast.
    Unified,
}

/// The common uses of memory. [`Writer`], [`Access`] and the hints for kernels say it more exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Usage {
    /// Kernels write and read it: the default.
    #[default]
    Device,
    /// The host writes it, every frame or step, and the device reads or copies it.
    Upload,
    /// The device writes it and the host reads it.
    Readback,
    /// Host and device both access it at any time.
    Unified,
}

/// The writer of an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Writer {
    /// Kernels.
    #[default]
    Device,
    /// The host, once, before kernels read the data.
    HostOnce,
    /// The host, every frame or step.
    HostPerFrame,
}

/// The reader of an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Access {
    /// Kernels.
    #[default]
    Device,
    /// The host, after the device wrote the data.
    Host,
    /// Host and device, at any time.
    Both,
}

/// The access pattern of kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// Neighbouring lanes read neighbouring addresses.
    #[default]
    Coalesced,
    /// All lanes read the same address, known at compile time: a loop over a whole table.
    Broadcast,
    /// All lanes read the same address, computed at run time.
    Uniform,
    /// Each lane reads single elements at random indices.
    Gathered,
    /// Each lane reads one or two fields of records (about 16 bytes) at random indices.
    Fields,
    /// Each lane reads whole records (about 16 bytes) at random indices.
    Records,
    /// A workgroup reads the same tile many times.
    Tiled,
}

/// The arithmetic that a kernel does per element it reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Work {
    /// Unspecified. Assume the kernel may do substantial arithmetic per element.
    #[default]
    Any,
    /// At most one multiply-add per element, not counting address arithmetic. The kernel reads several elements from this
    /// allocation for each element it reads elsewhere.
    Light,
}

/// The dependence of a read on the one before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dependence {
    /// Unspecified.
    #[default]
    Any,
    /// Addresses do not depend on values read before.
    Independent,
    /// Each value read gives the next address, as in a linked list.
    Chained,
}

/// The expected lifetime of an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lifetime {
    /// Until freed, at an unknown time.
    #[default]
    Persistent,
    /// One frame or step.
    Frame,
    /// One kernel launch.
    Kernel,
}

/// Permission to share a block with other allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// The block may hold other allocations.
    #[default]
    Shared,
    /// The allocation has a driver object of its own, at offset zero.
    Dedicated,
}

/// Requirement for memory that communication libraries can register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Registration {
    /// Not required.
    #[default]
    Any,
    /// Required: one driver handle that can be exported. Heaps without such handles are not used.
    Needed,
}

/// Permission for defragmentation to move an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mobility {
    /// Moves whenever no binding of the allocation is held.
    #[default]
    Movable,
    /// Moves only in passes whose caller decides about each move, because native objects are bound to its place.
    OnConsent,
    /// Never moves; the address is stable.
    Pinned,
}

/// The initial contents of an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Contents {
    /// Unspecified: data that earlier allocations of the same domain left.
    #[default]
    Any,
    /// Zeros, including padding.
    Zero,
}

/// Zeroing of an allocation when it is freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Privacy {
    /// Not zeroed. Later allocations of the same domain may see the data.
    #[default]
    Open,
    /// Zeroed on free, and never moved before.
    Secret,
}

/// Permission to ask the driver for more memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Grow {
    /// Allocates from the driver if no held memory fits.
    #[default]
    Allowed,
    /// Never asks; uses only memory that is held already.
    Never,
}

/// Permission to use another region when the best one is missing or too small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Substitution {
    /// Allowed. The placement says which region was replaced.
    #[default]
    Allowed,
    /// Forbidden. The request fails.
    Forbidden,
}

/// Requirement for host-coherent memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Coherence {
    /// Not required. The manager flushes and invalidates where the heap needs it.
    #[default]
    Any,
    /// Required. Heaps that need a flush are not used.
    Needed,
}

/// Permission to fall back to host memory when every suitable heap is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Spill {
    /// Forbidden. The request fails.
    #[default]
    Forbidden,
    /// Allowed as the last resort. The placement says so.
    Allowed,
}

/// A value with one keyword in files, command lines and reports.
///
/// ```
/// use omniheap_placement::{Keyword, Writer};
/// assert_eq!(Writer::from_word("host-once"), Some(Writer::HostOnce));
/// assert_eq!(Writer::HostPerFrame.word(), "host-per-frame");
/// ```
pub trait Keyword: Copy + PartialEq + Send + Sync + 'static {
    /// All values with their keywords.
    const WORDS: &'static [(&'static str, Self)];

    /// Returns the value of a keyword.
    #[must_use]
    fn from_word(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(known, _)| *known == word).map(|(_, value)| *value)
    }

    /// Returns the keyword of this value.
    #[must_use]
    fn word(self) -> &'static str {
        let found = Self::WORDS.iter().find(|(_, value)| *value == self);
        found.map_or("unknown", |(word, _)| *word)
    }
}

/// Implements [`Keyword`] for a type, with all of its values.
macro_rules! words {
    ($type:ident: $($word:literal => $value:ident),+) => {
        impl Keyword for $type {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$value)),+];
        }
    };
}
pub(crate) use words;

words!(Region: "device" => Device, "constant" => Constant, "shared" => Shared, "staging" => Staging, "unified" => Unified);
words!(HeapKind: "device" => Device, "constant" => Constant, "staging" => Staging, "unified" => Unified);
words!(Writer: "device" => Device, "host-once" => HostOnce, "host-per-frame" => HostPerFrame);
words!(Access: "device" => Device, "host" => Host, "both" => Both);
words!(Pattern: "coalesced" => Coalesced, "broadcast" => Broadcast, "uniform" => Uniform, "gathered" => Gathered, "fields" => Fields, "records" => Records, "tiled" => Tiled);
words!(Work: "any" => Any, "light" => Light);
words!(Dependence: "any" => Any, "independent" => Independent, "chained" => Chained);
words!(Lifetime: "persistent" => Persistent, "frame" => Frame, "kernel" => Kernel);
words!(Coherence: "any" => Any, "needed" => Needed);
words!(Registration: "any" => Any, "needed" => Needed);
words!(Substitution: "allowed" => Allowed, "forbidden" => Forbidden);
words!(Spill: "forbidden" => Forbidden, "allowed" => Allowed);
words!(Privacy: "open" => Open, "secret" => Secret);
