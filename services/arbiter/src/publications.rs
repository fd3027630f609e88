//! Memory that processes have published: the descriptors that the arbiter keeps, and the processes that have them
//! attached.
#![forbid(unsafe_code)]

use crate::books::TenantId;
use crate::frame::{Contents, Name, PIECES, PublicationInfo, Refusal};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Descriptors of all publications together. With those of connections and processes they stay below the usual limit of 1,024.
const DESCRIPTORS: usize = 128;

#[derive(Debug)]
struct Publication {
    name: Name,
    uid: u32,
    contents: Contents,
    descriptors: Vec<Arc<OwnedFd>>,
    /// Number of attachments of each process.
    attached: BTreeMap<TenantId, u64>,
    is_withdrawn: bool,
}

/// Memory that a process attaches.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) publication: u64,
    pub(crate) contents: Contents,
    pub(crate) descriptors: Vec<Arc<OwnedFd>>,
}

/// All publications.
#[derive(Debug, Default)]
pub(crate) struct Publications {
    all: BTreeMap<u64, Publication>,
    next: u64,
}

impl Publications {
    fn find(&self, name: Name) -> Option<(u64, &Publication)> {
        let mut current = self.all.iter().filter(|(_, it)| !it.is_withdrawn);
        current.find(|(_, it)| it.name == name).map(|(id, it)| (*id, it))
    }

    /// Returns all of them, also those that were withdrawn and are attached.
    pub(crate) fn list(&self) -> Vec<PublicationInfo> {
        let info = |it: &Publication| PublicationInfo {
            name: it.name,
            uid: it.uid.into(),
            size: it.contents.size,
            attached: it.attached.len() as u64,
            withdrawn: it.is_withdrawn.into(),
        };
        self.all.values().map(info).collect()
    }

    /// Returns the bytes that processes of a user have published.
    pub(crate) fn bytes_of(&self, uid: u32) -> u64 {
        let own = self.all.values().filter(|it| it.uid == uid);
        own.fold(0, |sum, it| sum.saturating_add(it.contents.size))
    }

    /// Refuses what [`publish`](Self::publish) would: a name that is taken, another number of descriptors than of pieces, and too many.
    pub(crate) fn check(
        &self,
        uid: u32,
        name: Name,
        contents: &Contents,
        descriptors: usize,
    ) -> Result<(), Refusal> {
        if contents.pieces().count() != descriptors {
            return Err(Refusal::Contradiction);
        }
        if self.find(name).is_some() {
            return Err(Refusal::Published);
        }
        let count = |it: &Publication| it.descriptors.len();
        let own: usize = self.all.values().filter(|it| it.uid == uid).map(count).sum();
        let all: usize = self.all.values().map(count).sum();
        let is_room = (own + descriptors) as u64 <= PIECES && all + descriptors <= DESCRIPTORS;
        if is_room { Ok(()) } else { Err(Refusal::TooMany) }
    }

    /// Keeps descriptors under a name. [`check`](Self::check) had nothing against it.
    pub(crate) fn publish(
        &mut self,
        uid: u32,
        name: Name,
        contents: Contents,
        descriptors: Vec<OwnedFd>,
    ) {
        let descriptors = descriptors.into_iter().map(Arc::new).collect();
        let (attached, is_withdrawn) = (BTreeMap::new(), false);
        let made = Publication { name, uid, contents, descriptors, attached, is_withdrawn };
        self.all.insert(self.next, made);
        self.next += 1;
    }

    /// Returns the publication to attach, if the process belongs to its user or `may` attach the name.
    pub(crate) fn attachment(
        &self,
        name: Name,
        uid: u32,
        may: impl Fn(&str) -> bool,
    ) -> Result<Attachment, Refusal> {
        let found = self.find(name).filter(|(_, it)| it.uid == uid || may(name.as_str()));
        let (publication, found) = found.ok_or(Refusal::NotPublished)?;
        let (contents, descriptors) = (found.contents, found.descriptors.clone());
        Ok(Attachment { publication, contents, descriptors })
    }

    /// Counts one more attachment by a process.
    pub(crate) fn attach(&mut self, publication: u64, tenant: TenantId) {
        if let Some(found) = self.all.get_mut(&publication) {
            *found.attached.entry(tenant).or_default() += 1;
        }
    }

    /// Notes that a process gave up what it had attached once. Returns the bytes that are free by that.
    pub(crate) fn detach(&mut self, publication: u64, tenant: TenantId) -> Result<u64, Refusal> {
        let found = self.all.get_mut(&publication).ok_or(Refusal::NotPublished)?;
        let times = found.attached.get_mut(&tenant).ok_or(Refusal::Contradiction)?;
        *times -= 1;
        if *times == 0 {
            found.attached.remove(&tenant);
        }
        Ok(self.end_unused())
    }

    /// Finds a publication by name among those of a user, or among all if `uid` is none.
    pub(crate) fn own(&self, name: Name, uid: Option<u32>) -> Result<u64, Refusal> {
        let found = self.find(name).filter(|(_, it)| uid.is_none_or(|uid| uid == it.uid));
        found.map(|(publication, _)| publication).ok_or(Refusal::NotPublished)
    }

    /// Withdraws a publication. Returns the bytes freed by it.
    pub(crate) fn withdraw(&mut self, publication: u64) -> u64 {
        if let Some(found) = self.all.get_mut(&publication) {
            found.is_withdrawn = true;
        }
        self.end_unused()
    }

    /// Forgets a process that is gone. Returns the bytes that are free by that.
    pub(crate) fn leave(&mut self, tenant: TenantId) -> u64 {
        for publication in self.all.values_mut() {
            publication.attached.remove(&tenant);
        }
        self.end_unused()
    }

    /// Closes the descriptors of publications that were withdrawn and that no process has attached.
    fn end_unused(&mut self) -> u64 {
        let ended = self.all.extract_if(.., |_, it| it.is_withdrawn && it.attached.is_empty());
        ended.fold(0, |sum, (_, it)| sum.saturating_add(it.contents.size))
    }
}
