//! Kernels as data: what every backend needs to run one, in every language that one of them speaks.
#![expect(unsafe_code, reason = "the author of a kernel answers for its text")]
mod spirv;

use crate::{BlockOffset, ErrorKind, Result};
use core::{fmt, ops::Deref};

/// Use that a kernel makes of one of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slot {
    /// Reads it through the constant cache.
    Constant,
    /// Reads it.
    Read,
    /// Reads and writes it.
    Write,
}

/// The text of a kernel in every language that a backend speaks, and what it expects of a launch.
///
/// The same arguments in the same order go to every language: one per [`Slot`], then the parameters. `name` is the
/// entry point in all of them.
#[derive(Clone, Copy)]
pub struct KernelText {
    /// The entry point.
    pub name: &'static str,
    /// Threads of a group in each direction.
    pub group: [u32; 3],
    /// Arguments that the kernel binds, in order.
    pub slots: &'static [Slot],
    /// Bytes of its parameters, a multiple of four.
    pub parameters: u32,
    /// WGSL. The parameters are `var<immediate>`; words of shared memory come through the override `shared_words`.
    pub wgsl: &'static str,
    /// SPIR-V words. Slot `i` is binding `i` of set 0: a uniform buffer for [`Slot::Constant`], else a storage buffer. The
    /// parameters are push constants; words of shared memory come through constant 0.
    pub spirv: &'static [u32],
    /// C++ with `__global__`. Every slot is a pointer, the parameters one struct by value, shared memory is dynamic.
    /// A constant slot `i` may instead be read from the symbol `omniheap_constant_<i>`.
    pub cpp: &'static str,
    /// The same in Rust, one call for all groups.
    pub host: fn(&mut HostLaunch<'_>),
}

/// A kernel whose author answers for its [text](KernelText). Drivers believe what they are given, so its fields cannot be changed.
#[derive(Clone, Copy, Debug)]
pub struct Kernel(KernelText);

impl Kernel {
    /// Makes a kernel of its text.
    ///
    /// # Safety
    ///
    /// Drivers check none of this. In each language whose text is not empty:
    ///
    /// - The text is valid: SPIR-V passes `spirv-val` for the devices that it is loaded on, and needs no
    ///   capability that they lack.
    /// - The entry point `name` takes exactly the slots, of these kinds and in this order, then parameters of this size, and
    ///   has this group size. It binds nothing else.
    #[must_use]
    pub const unsafe fn new(text: KernelText) -> Self {
        Self(text)
    }

    /// Looks for slips of the author: SPIR-V that is cut short, or whose entry point, group size or bindings are not as
    /// declared. A kernel that passes may be wrong all the same.
    ///
    /// # Errors
    ///
    /// `InvalidConfig`, with what is wrong as the detail.
    pub fn check(&self) -> Result<()> {
        spirv::check(self)
    }

    /// Checks that a launch has as many arguments, and as many bytes of parameters, as the kernel declares.
    ///
    /// # Errors
    ///
    /// `InvalidConfig`.
    pub fn check_launch(&self, arguments: usize, parameters: usize) -> Result<()> {
        if arguments != self.slots.len() {
            let detail = "the launch has more or fewer arguments than the kernel has `slots`";
            return Err(ErrorKind::InvalidConfig.because(detail));
        }
        if parameters as u64 != u64::from(self.parameters) {
            let detail = "the launch has more or fewer bytes than the kernel's `parameters`";
            return Err(ErrorKind::InvalidConfig.because(detail));
        }
        Ok(())
    }
}

impl Deref for Kernel {
    type Target = KernelText;

    fn deref(&self) -> &KernelText {
        &self.0
    }
}

impl fmt::Debug for KernelText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelText")
            .field("name", &self.name)
            .field("group", &self.group)
            .field("slots", &self.slots)
            .field("parameters", &self.parameters)
            .finish_non_exhaustive()
    }
}

/// A loaded kernel: a number that means something to the backend that loaded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProgramId(pub u64);

/// Bytes of a block that a kernel uses.
#[derive(Debug)]
pub struct Argument<'a, B: ?Sized> {
    /// Start of the bytes.
    pub place: BlockOffset<'a, B>,
    /// Number of them.
    pub size: u64,
}

impl<B: ?Sized> Clone for Argument<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<B: ?Sized> Copy for Argument<'_, B> {}

/// A launch as a kernel in Rust sees it.
#[derive(Debug)]
pub struct HostLaunch<'a> {
    /// Groups in each direction.
    pub groups: [u32; 3],
    /// Bytes of shared memory per group.
    pub shared: u64,
    /// The arguments that the kernel reads, in the order of its slots.
    pub reads: &'a [&'a [u8]],
    /// The arguments that the kernel writes, in the order of its slots.
    pub writes: &'a mut [&'a mut [u8]],
    /// The parameters.
    pub parameters: &'a [u8],
}
