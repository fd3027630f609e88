//! A span as a binding, with wgpu's rules checked before wgpu sees it.
use crate::{
    Block, Wgpu,
    caps::{HeapClass, offset_align},
};
use core::num::NonZero;
use omniheap_seam::{Align, ErrorKind, KernelAccess, Result, Span};
use wgpu::{BufferBinding, BufferUsages};

/// Binding type of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bind {
    /// As `var<uniform>`.
    Uniform,
    /// As `var<storage, read>`.
    ReadOnlyStorage,
    /// As `var<storage, read_write>`.
    Storage,
}

impl Wgpu {
    /// Returns the alignment that a span needs to be bound so: ask for it in the span's layout.
    #[must_use]
    pub fn bind_align(&self, bind: Bind) -> Align {
        let limits = self.device().limits();
        offset_align(match bind {
            Bind::Uniform => limits.min_uniform_buffer_offset_alignment,
            Bind::ReadOnlyStorage | Bind::Storage => limits.min_storage_buffer_offset_alignment,
        })
    }

    /// Returns the most bytes that one binding shows.
    #[must_use]
    pub fn bind_limit(&self, bind: Bind) -> u64 {
        let limits = self.device().limits();
        match bind {
            Bind::Uniform => limits.max_uniform_buffer_binding_size,
            Bind::ReadOnlyStorage | Bind::Storage => limits.max_storage_buffer_binding_size,
        }
    }

    /// Returns a binding of `span` that wgpu will accept.
    ///
    /// wgpu tracks usage per buffer: a dispatch or render pass may not bind one buffer both as `read_write` storage and in another way. Data that
    /// kernels only read must therefore be requested with a host `Writer`: it then gets buffers of its own.
    ///
    /// # Errors
    ///
    /// `Foreign`, `OutOfRange`, `ZeroSize`, `Misaligned` ([`bind_align`](Self::bind_align)), `ExceedsLimit`
    /// ([`bind_limit`](Self::bind_limit)), `Unsupported` when the block's heap has no such usage or is not for data that
    /// kernels write; the error says which requests get a heap that has it.
    pub fn bind<'a>(&self, block: &'a Block, span: Span, bind: Bind) -> Result<BufferBinding<'a>> {
        self.own(block)?;
        let usage = match bind {
            Bind::Uniform => BufferUsages::UNIFORM,
            Bind::ReadOnlyStorage | Bind::Storage => BufferUsages::STORAGE,
        };
        let kernels = self.class(block.heap()).map(HeapClass::kernels);
        let written = bind == Bind::Storage && kernels == Some(KernelAccess::ReadOnly);
        if written || !block.buffer().usage().contains(usage) {
            return Err(ErrorKind::Unsupported.because(why_not(kernels)));
        }
        let end = span.offset.checked_add(span.size).ok_or(ErrorKind::OutOfRange)?;
        if end > block.size() {
            return Err(ErrorKind::OutOfRange.into());
        }
        let size = NonZero::new(span.size).ok_or(ErrorKind::ZeroSize)?;
        // Storage arrays are made of words.
        let words = bind == Bind::Uniform || span.size.is_multiple_of(4);
        if !words || !self.bind_align(bind).divides(span.offset) {
            return Err(ErrorKind::Misaligned.into());
        }
        if span.size > self.bind_limit(bind) {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        Ok(BufferBinding { buffer: block.buffer(), offset: span.offset, size: Some(size) })
    }
}

/// Says why a heap's buffers are not bound so, and which requests get others.
const fn why_not(kernels: Option<KernelAccess>) -> &'static str {
    match kernels {
        Some(KernelAccess::None) => {
            "wgpu binds no staging buffer: copy the bytes to device memory, or ask for `Usage::Upload` without naming a heap"
        }
        _ => {
            "this heap is for data that kernels only read; data that they write needs a request without a host `Writer`"
        }
    }
}
