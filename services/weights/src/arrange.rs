//! Arrangement of tensors in allocations: those that share one, and their offsets in it. Pure.

use crate::Tensor;
use omniheap_core::Align;

/// Every tensor starts at a multiple of this in its allocation, which kernels of all devices load fast from.
pub(crate) const ALIGN: Align = Align::of(256);
/// Smaller tensors share: an allocation each would cost more than their bytes.
const OWN: u64 = 1 << 20;
/// Most bytes that share an allocation.
const SHARED: u64 = 32 << 20;

/// A tensor's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    /// Number of the allocation.
    pub group: usize,
    /// First byte in it.
    pub offset: u64,
}

/// Allocations for tensors.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Arrangement {
    /// Bytes of each allocation.
    pub sizes: Vec<u64>,
    /// Place of each tensor. Tensors of no bytes have any.
    pub spots: Vec<Spot>,
}

/// Arranges tensors as [`LoadWeights::load_weights`](crate::LoadWeights::load_weights) does, for a device that copies units of
/// `copy` bytes. Small neighbours stay neighbours, so that one copy serves many of them.
#[must_use]
pub fn arrange(tensors: &[&Tensor], copy: Align) -> Arrangement {
    let align = ALIGN.max(copy);
    let mut arrangement = Arrangement::default();
    let mut shared = None;
    for tensor in tensors {
        let Arrangement { sizes, spots } = &mut arrangement;
        let size = align.up(tensor.size).unwrap_or(u64::MAX);
        if size == 0 {
            spots.push(Spot { group: 0, offset: 0 });
            continue;
        }
        let group = match shared {
            Some(group) if size < OWN && sizes[group] + size <= SHARED => group,
            _ => {
                sizes.push(0);
                if size < OWN {
                    shared = Some(sizes.len() - 1);
                }
                sizes.len() - 1
            }
        };
        spots.push(Spot { group, offset: sizes[group] });
        sizes[group] += size;
    }
    arrangement
}

#[cfg(test)]
mod tests {
    use super::{ALIGN, Spot, arrange};
    use crate::{Dtype, Tensor};
    use omniheap_core::Align;

    fn tensor(size: u64) -> Tensor {
        let (name, shape) = ("".into(), [size].into());
        Tensor { name, dtype: Dtype::U8, shape, file: 0, offset: 0, size }
    }

    #[test]
    fn small_tensors_share_and_large_ones_do_not() {
        let tensors = [100, 2 << 20, 0, 300, (1 << 20) - 1].map(tensor);
        let arranged = arrange(&tensors.each_ref(), Align::of(4));
        assert_eq!(arranged.sizes, [256 + 512, 2 << 20, 1 << 20]);
        let spot = |group, offset| Spot { group, offset };
        assert_eq!(arranged.spots, [spot(0, 0), spot(1, 0), spot(0, 0), spot(0, 256), spot(2, 0)]);
        assert!(arranged.spots.iter().all(|spot| ALIGN.divides(spot.offset)));
    }
}
