//! Names and tags of a trace: a tree of interned strings.

use crate::index::Index;
use core::hash::BuildHasher;
use omniheap_pickle::tight;
use std::hash::RandomState;

/// Names one label of a trace: a path of tags whose last part is the name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelId(pub u32);

impl LabelId {
    /// No label: the root of the tree.
    pub const NONE: Self = Self(0);
}

/// Returns the text of a numeric tag.
pub(crate) fn tag_text(tag: omniheap_core::Tag) -> String {
    format!("tag {}", tag.0)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Node {
    parent: u32,
    text: u32,
}

/// The labels of a trace, each stored once: a label is its parent label plus one string.
///
/// # Examples
/// ```
/// use omniheap_trace::{LabelId, Labels};
/// let mut labels = Labels::default();
/// let model = labels.intern(LabelId::NONE, "model");
/// let weights = labels.intern(model, "weights");
/// assert_eq!(labels.intern(model, "weights"), weights);
/// assert_eq!(labels.text(weights), "weights");
/// assert_eq!(labels.path(weights), "model/weights");
/// ```
#[derive(Debug, Clone, Default)]
pub struct Labels {
    bytes: String,
    /// End of each string in `bytes`; it starts where the one before ends.
    ends: Vec<u32>,
    nodes: Vec<Node>,
    node_index: Index,
    string_index: Index,
    hasher: RandomState,
}

impl Labels {
    /// Bytes of text that one trace may hold; offsets are 32 bits wide.
    pub const MAX_TEXT: usize = u32::MAX as usize;

    /// Returns the label `parent / text`, adding it if it is new; [`LabelId::NONE`] is the root.
    ///
    /// # Panics
    /// Panics when `parent` is not of these labels, or when the text of all labels passes [`Self::MAX_TEXT`].
    pub fn intern(&mut self, parent: LabelId, text: &str) -> LabelId {
        assert!(parent.0 as usize <= self.nodes.len(), "the parent must be a label of this trace");
        let node = Node { parent: parent.0, text: self.string(text) };
        let (nodes, hasher) = (&self.nodes, &self.hasher);
        let hash_of = |node: Node| hasher.hash_one((node.parent, node.text));
        let next = index_u32(nodes.len());
        let is = |other: u32| nodes[other as usize] == node;
        match self
            .node_index
            .find_or_add(hash_of(node), next, is, |other| hash_of(nodes[other as usize]))
        {
            Some(found) => LabelId(found + 1),
            None => {
                tight::push(&mut self.nodes, node);
                LabelId(next + 1)
            }
        }
    }

    /// Returns whether `label` is `parent / text`.
    pub(crate) fn is(&self, label: LabelId, parent: LabelId, text: &str) -> bool {
        self.node(label)
            .is_some_and(|node| node.parent == parent.0 && self.string_at(node.text) == text)
    }

    /// Returns the last part of `label`'s path: its name. Empty for [`LabelId::NONE`].
    ///
    /// # Panics
    /// Panics when `label` is not of these labels.
    pub fn text(&self, label: LabelId) -> &str {
        match self.node(label) {
            None => "",
            Some(node) => self.string_at(node.text),
        }
    }

    /// Returns the label above `label`; [`LabelId::NONE`] for one at the top.
    ///
    /// # Panics
    /// Panics when `label` is not of these labels.
    pub fn parent(&self, label: LabelId) -> LabelId {
        self.node(label).map_or(LabelId::NONE, |node| LabelId(node.parent))
    }

    /// Returns the whole path of `label`, parts joined by `/`.
    ///
    /// # Panics
    /// Panics when `label` is not of these labels.
    pub fn path(&self, label: LabelId) -> String {
        self.tail(label, usize::MAX)
    }

    /// Returns the end of `label`'s path: its whole text where that has at most `most` bytes, else `…` and the last of them.
    pub(crate) fn tail(&self, label: LabelId, most: usize) -> String {
        let above = |at: u32| Some((self.parent(LabelId(at)).0, self.text(LabelId(at))));
        tail(label.0, most, |at| if at == 0 { None } else { above(at) })
    }

    /// Returns the number of labels; ids are `1..=len`.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns whether there is no label.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the bytes of text held.
    pub fn text_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn node(&self, label: LabelId) -> Option<Node> {
        let index = (label.0 as usize).checked_sub(1)?;
        Some(*self.nodes.get(index).expect("the label must be of this trace"))
    }

    fn string_at(&self, index: u32) -> &str {
        slice(&self.bytes, &self.ends, index)
    }

    fn string(&mut self, text: &str) -> u32 {
        let (bytes, ends, hasher) = (&self.bytes, &self.ends, &self.hasher);
        let next = index_u32(ends.len());
        let is = |other: u32| slice(bytes, ends, other) == text;
        let hash_of = |other: u32| hasher.hash_one(slice(bytes, ends, other));
        if let Some(found) = self.string_index.find_or_add(hasher.hash_one(text), next, is, hash_of)
        {
            return found;
        }
        assert!(
            text.len() <= Self::MAX_TEXT - self.bytes.len(),
            "label text must stay below 4 GiB"
        );
        if self.bytes.capacity() - self.bytes.len() < text.len() {
            self.bytes.reserve_exact(text.len() + self.bytes.len() / 8);
        }
        self.bytes.push_str(text);
        tight::push(&mut self.ends, index_u32(self.bytes.len()));
        next
    }
}

/// Returns the end of a label's path in `most` bytes and a mark. `above` gives a label's parent and its text, and nothing above the first.
pub(crate) fn tail<'a>(
    label: u32,
    most: usize,
    above: impl Fn(u32) -> Option<(u32, &'a str)>,
) -> String {
    let (mut parts, mut bytes, mut next) = (Vec::new(), 0, above(label));
    while let Some((parent, text)) = next.filter(|_| bytes <= most) {
        parts.push(text);
        bytes += text.len() + 1;
        next = above(parent);
    }
    parts.reverse();
    let text = parts.join("/");
    if next.is_none() && text.len() <= most {
        return text;
    }
    let start = text.ceil_char_boundary(text.len().saturating_sub(most));
    format!("…{}", &text[start..])
}

fn slice<'a>(bytes: &'a str, ends: &[u32], index: u32) -> &'a str {
    let index = index as usize;
    let start = index.checked_sub(1).map_or(0, |before| ends[before] as usize);
    &bytes[start..ends[index] as usize]
}

impl PartialEq for Labels {
    fn eq(&self, other: &Self) -> bool {
        self.nodes == other.nodes && self.ends == other.ends && self.bytes == other.bytes
    }
}

impl Eq for Labels {}

fn index_u32(index: usize) -> u32 {
    u32::try_from(index).expect("text is below 4 GiB and every part takes bytes or is stored once")
}
