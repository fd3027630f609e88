//! Growing by an eighth: what is reserved stays close to what is used, and copies stay rare.

/// Pushes `item`.
#[inline]
pub fn push<T>(items: &mut Vec<T>, item: T) {
    if items.len() == items.capacity() {
        items.reserve_exact(64.max(items.len() / 8));
    }
    items.push(item);
}

/// Appends copies of `more`.
pub fn extend<T: Copy>(items: &mut Vec<T>, more: &[T]) {
    if items.capacity() - items.len() < more.len() {
        items.reserve_exact(more.len().max(items.len() / 8));
    }
    items.extend_from_slice(more);
}
