// Neighbours read neighbouring numbers.
value = x * ((const float*)TABLE)[i % (4u * rows)];
