//! Live allocations of a context by address.
use core::ops::Bound::{Excluded, Unbounded};
use omniheap_core::{Allocation, Backend, Span};
use std::collections::{BTreeMap, btree_map::Entry};

/// An allocation of the program.
pub(crate) struct Resident<B: Backend> {
    pub(crate) allocation: Allocation<B>,
    pub(crate) size: u64,
    /// A number that no other allocation has.
    pub(crate) number: u64,
    /// True if it has a block of its own.
    pub(crate) is_whole: bool,
    /// Handle of the stream in whose order it was made; zero for none.
    pub(crate) stream: usize,
    /// The addresses of the block that it lies in.
    pub(crate) block: Span,
}

/// Live allocations by address. The latest has a place of its own, since it is often freed first.
pub(crate) struct Live<B: Backend> {
    latest: Option<(u64, Resident<B>)>,
    others: BTreeMap<u64, Resident<B>>,
    pub(crate) ordered: Ordered,
}

impl<B: Backend> Default for Live<B> {
    fn default() -> Self {
        Self { latest: None, others: BTreeMap::new(), ordered: Ordered::default() }
    }
}

/// Bytes that streams asked for in their order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ordered {
    pub(crate) now: u64,
    /// The most there ever was, or since that was set back.
    pub(crate) most: u64,
    /// The same, set back with the most of held bytes.
    pub(crate) most_held: u64,
}

impl<B: Backend> Live<B> {
    #[inline]
    pub(crate) fn insert(&mut self, address: u64, resident: Resident<B>) {
        if resident.stream != 0 {
            let Ordered { now, most, most_held } = &mut self.ordered;
            *now += resident.size;
            *most = (*most).max(*now);
            *most_held = (*most_held).max(*now);
        }
        if let Some((address, earlier)) = self.latest.replace((address, resident)) {
            self.others.insert(address, earlier);
        }
    }

    /// Takes out what lives at an address, if it `may` be.
    #[inline]
    pub(crate) fn remove_if(
        &mut self,
        address: u64,
        may: impl Fn(&Resident<B>) -> bool,
    ) -> Option<Resident<B>> {
        let removed = self.take_if(address, may)?;
        if removed.stream != 0 {
            self.ordered.now -= removed.size;
        }
        Some(removed)
    }

    #[inline]
    fn take_if(&mut self, address: u64, may: impl Fn(&Resident<B>) -> bool) -> Option<Resident<B>> {
        match &self.latest {
            Some((latest, resident)) if *latest == address => {
                if may(resident) {
                    self.latest.take().map(|(_, resident)| resident)
                } else {
                    None
                }
            }
            _ => match self.others.entry(address) {
                Entry::Occupied(entry) if may(entry.get()) => Some(entry.remove()),
                _ => None,
            },
        }
    }

    /// Returns the allocation that begins at an address, or the next one before it.
    pub(crate) fn before(&self, address: u64) -> Option<(u64, &Resident<B>)> {
        let latest = self.latest.as_ref().filter(|(start, _)| *start <= address);
        let latest = latest.map(|(start, resident)| (*start, resident));
        let other = self.others.range(..=address).next_back().map(|(start, it)| (*start, it));
        latest.into_iter().chain(other).max_by_key(|(start, _)| *start)
    }

    /// Returns the next allocation that begins behind an address.
    pub(crate) fn behind(&self, address: u64) -> Option<&Resident<B>> {
        let latest = self.latest.as_ref().filter(|(start, _)| *start > address);
        let latest = latest.map(|(start, resident)| (*start, resident));
        let other = self
            .others
            .range((Excluded(address), Unbounded))
            .next()
            .map(|(start, it)| (*start, it));
        latest.into_iter().chain(other).min_by_key(|(start, _)| *start).map(|(_, it)| it)
    }
}
