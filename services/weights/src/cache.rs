//! The cache of keys and values that a model needs for a context: from the shapes of its projections.

use crate::picture::layer_of;
use crate::{Tensor, WeightsFile};

/// Keys and values that one layer keeps for each token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheLayer {
    /// Name of the layer, such as `model.layers.3`.
    pub layer: String,
    /// Elements of its keys for one token.
    pub keys: u64,
    /// Elements of its values for one token.
    pub values: u64,
}

/// Outputs of a layer's projections, as far as the file has them.
#[derive(Debug, Default)]
struct Projections {
    keys: Option<u64>,
    values: Option<u64>,
    /// Outputs of queries, keys and values in one.
    fused: Option<u64>,
    /// Outputs of queries: what the output projection reads.
    queries: Option<u64>,
}

impl WeightsFile {
    /// Returns the cache of each layer that has projections of keys and values, in the order of the file.
    ///
    /// Names are those of llama.cpp, of Hugging Face's models and of GPT-2. Layers whose projections are packed, or named
    /// otherwise, are not in the list: their cache is not known from the file.
    #[must_use]
    pub fn cache(&self) -> Vec<CacheLayer> {
        let mut layers: Vec<(&str, Projections)> = Vec::new();
        for tensor in self.tensors() {
            let layer = layer_of(&tensor.name);
            if layers.last().is_none_or(|(last, _)| *last != layer) {
                let known = layers.iter().position(|(name, _)| *name == layer);
                let entry = known.map(|at| layers.remove(at));
                layers.push(entry.unwrap_or((layer, Projections::default())));
            }
            let Some((_, projections)) = layers.last_mut() else { continue };
            note(tensor, projections);
        }
        layers.sort_by_key(|(layer, _)| number_of(layer));
        layers.into_iter().filter_map(|(layer, found)| cache_of(layer, &found)).collect()
    }
}

/// Returns the number at the end of a layer's name.
fn number_of(layer: &str) -> u64 {
    layer.rsplit('.').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn note(tensor: &Tensor, projections: &mut Projections) {
    let parts: Vec<&str> = tensor.name.split('.').collect();
    let ([.., part, "weight"], &[out, input]) = (&parts[..], &tensor.shape[..]) else { return };
    let is_attention = parts.iter().any(|part| part.contains("attn") || part.contains("attention"));
    match *part {
        "attn_k" | "k_proj" | "wk" => projections.keys = Some(out),
        "attn_v" | "v_proj" | "wv" => projections.values = Some(out),
        "attn_qkv" | "qkv_proj" | "query_key_value" | "Wqkv" => projections.fused = Some(out),
        "attn_output" | "o_proj" | "out_proj" | "wo" => projections.queries = Some(input),
        // GPT-2 keeps its matrices the other way round.
        "c_attn" => projections.fused = Some(input),
        "c_proj" | "dense" if is_attention => projections.queries = Some(out.min(input)),
        _ => {}
    }
}

fn cache_of(layer: &str, found: &Projections) -> Option<CacheLayer> {
    let (keys, values) = match found {
        Projections { keys: Some(keys), values: Some(values), .. } => (*keys, *values),
        Projections { fused: Some(fused), queries: Some(queries), .. } => {
            let both = fused.checked_sub(*queries).filter(|both| both.is_multiple_of(2))?;
            (both / 2, both / 2)
        }
        _ => return None,
    };
    Some(CacheLayer { layer: layer.to_owned(), keys, values })
}

#[cfg(test)]
mod tests {
    use super::{CacheLayer, Projections, cache_of, note};
    use crate::{Dtype, Tensor};

    fn cache(tensors: &[(&str, &[u64])]) -> Option<CacheLayer> {
        let mut found = Projections::default();
        for (name, shape) in tensors {
            let (name, shape) = ((*name).into(), (*shape).into());
            let tensor = Tensor { name, dtype: Dtype::F16, shape, file: 0, offset: 0, size: 0 };
            note(&tensor, &mut found);
        }
        cache_of("blk.0", &found)
    }

    #[test]
    fn projections_of_their_own_say_their_outputs() {
        let own =
            [("blk.0.attn_k.weight", &[256, 4096][..]), ("blk.0.attn_v.weight", &[512, 4096])];
        let layer = cache(&own).expect("both are there");
        assert_eq!((layer.keys, layer.values), (256, 512));
        assert_eq!(cache(&own[..1]), None, "values are missing");
    }

    #[test]
    fn fused_projections_need_what_the_output_reads() {
        let fused = ("blk.0.attn_qkv.weight", &[4096 + 2 * 256, 3072][..]);
        let layer = cache(&[fused, ("blk.0.attn_output.weight", &[3072, 4096])]).expect("known");
        assert_eq!((layer.keys, layer.values), (256, 256));
        assert_eq!(cache(&[fused]), None);
        assert_eq!(cache(&[fused, ("blk.0.attn_output.weight", &[3072, 9999])]), None);
        let other =
            [("h.0.attn.c_attn.weight", &[768, 2304][..]), ("h.0.attn.c_proj.weight", &[768, 768])];
        assert_eq!(cache(&other).map(|layer| layer.keys), Some(768));
        // The other projection of that name is no part of attention.
        let mlp = [other[0], ("h.0.mlp.c_proj.weight", &[3072, 768][..])];
        assert_eq!(cache(&mlp), None);
    }
}
