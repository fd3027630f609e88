// One number by value, and a second that the first one names.
const unsigned int all = 4u * rows;
const unsigned int first = min((unsigned int)(x * (float)all), all - 1u);
const float step = ((const float*)TABLE)[first];
const unsigned int second = (first + 1u + (unsigned int)(fabsf(step) * 65536.0f)) % all;
value = step + ((const float*)TABLE)[second] * x;
